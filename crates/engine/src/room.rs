//! Whether there is memory for a graph, checked before it is loaded: sizes come from files, and kernels cannot report a failed
//! allocation.

use edgecut_graph::{Graph, Origin, TensorId, constant_operators, units::Bytes};
use edgecut_ops as ops;

use crate::EngineError;

/// Smaller sizes are not checked.
const SMALL: Bytes = Bytes(32 << 20);

/// Checks that the least that loading and running `graph` takes can be allocated.
///
/// # Errors
/// With that size if it cannot.
pub(crate) fn check_room(graph: &Graph) -> Result<(), EngineError> {
    let need = least_bytes(graph);
    match has_room(need) {
        true => Ok(()),
        false => Err(EngineError::Other(format!("it takes at least {need} of memory, which this process cannot get"))),
    }
}

/// Whether `need` more bytes can be allocated at once. The system refuses what exceeds the limit of the process or all
/// that the machine has.
pub(crate) fn has_room(need: Bytes) -> bool {
    need < SMALL || usize::try_from(need.0).is_ok_and(can_map)
}

#[cfg(unix)]
fn can_map(bytes: usize) -> bool {
    // SAFETY: a private mapping that nothing reads or writes is made and removed.
    unsafe {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANON);
        let made = libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0);
        made != libc::MAP_FAILED && libc::munmap(made, bytes) == 0
    }
}

#[cfg(not(unix))]
fn can_map(bytes: usize) -> bool {
    Vec::<u8>::new().try_reserve_exact(bytes).is_ok()
}

/// Parameters, what is computed of them alone, the content of the largest one before it is converted, the tensors that are
/// live at one time in program order, and the largest result once more, which kernels may have in another form before they
/// return it. Unknown sizes count as 0.
fn least_bytes(graph: &Graph) -> Bytes {
    let size = |tensor: TensorId| graph.tensor(tensor).ty.bytes().unwrap_or_default();
    let constant = constant_operators(graph);
    let mut last_use = vec![0; graph.tensors().len()];
    for (step, (_, operator)) in (1..).zip(graph.operators()) {
        operator.operands().for_each(|operand| last_use[operand.0 as usize] = step);
    }
    graph.outputs.iter().for_each(|output| last_use[output.0 as usize] = usize::MAX);
    let mut held: Bytes = graph.parameters().map(size).sum();
    held += graph.parameters().map(size).max().unwrap_or_default();
    let mut live: Bytes = graph.inputs().map(size).sum();
    let mut peak = live + live;
    let mut largest = Bytes::ZERO;
    for (step, (id, operator)) in (1..).zip(graph.operators()) {
        let made: Bytes = match ops::is_view(operator) {
            true => Bytes::ZERO,
            false => operator.outputs.iter().copied().map(size).sum(),
        };
        largest = largest.max(made);
        if constant[id.0 as usize] {
            held += made;
            continue;
        }
        live += made;
        peak = peak.max(live);
        let mut freed: Vec<TensorId> = operator.operands().filter(|t| last_use[t.0 as usize] == step).collect();
        freed.sort_unstable();
        freed.dedup();
        let is_own = |tensor: &TensorId| match graph.tensor(*tensor).origin {
            Origin::Operator { operator, .. } => {
                !constant[operator.0 as usize] && !ops::is_view(graph.operator(operator))
            }
            _ => false,
        };
        // A view may outlive what it shows; what is freed too early makes the bound lower.
        live = freed.into_iter().filter(is_own).map(size).fold(live, |live, bytes| live - bytes);
    }
    held + peak + largest
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::{DType, Operator, TensorType};

    #[test]
    fn what_no_process_can_get_is_refused_before_it_exists() {
        let build = |rows: u64| {
            let mut graph = Graph::new();
            let ty = TensorType::of(DType::U8, &[rows]);
            let x = graph.add_tensor("x", ty.clone(), Origin::Input);
            let w = graph.add_tensor("w", ty.clone(), Origin::Parameter);
            let double = graph.add_operator(Operator::new("add", [w, w]), std::slice::from_ref(&ty));
            let double = graph.operator(double).outputs[0];
            let mut last = x;
            for _ in 0..3 {
                let sum = graph.add_operator(Operator::new("add", [last, double]), std::slice::from_ref(&ty));
                last = graph.operator(sum).outputs[0];
            }
            graph.outputs = vec![last];
            graph
        };
        // The parameter twice, its double, three tensors (the input stays with the caller), and a result once more.
        assert_eq!(least_bytes(&build(10)), Bytes(10 * 7));
        assert!(check_room(&build(1 << 20)).is_ok());
        for rows in [1 << 50, u64::MAX] {
            let error = check_room(&build(rows)).unwrap_err().to_string();
            assert!(error.contains("which this process cannot get"), "{error}");
        }
    }
}
