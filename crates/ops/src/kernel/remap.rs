//! Copies by index tables: for each axis and index of the result, the index of the data, or none. Covers padding, cropping,
//! dilation, reflection and enlargement by repetition.

use tract_core::internal::*;

use crate::kernel::element::for_dtype;

/// One index table per axis.
#[derive(Debug, Clone)]
pub(crate) struct Remap(Vec<Vec<Option<usize>>>);

impl Remap {
    pub fn new(tables: Vec<Vec<Option<usize>>>) -> Remap {
        Remap(tables)
    }

    pub fn tables(&self) -> &[Vec<Option<usize>>] {
        &self.0
    }

    pub fn shape(&self) -> Vec<usize> {
        self.0.iter().map(Vec::len).collect()
    }

    /// Copies `data` by the tables; entries without an index get `fill`, of the same dtype.
    ///
    /// # Errors
    /// If an index is out of range, or the rank differs.
    pub fn apply(&self, data: &Tensor, fill: &Tensor) -> TractResult<Tensor> {
        ensure!(self.0.len() == data.rank(), "the index tables have rank {}, the data is {data:?}", self.0.len());
        let inside = self.0.iter().zip(data.shape()).all(|(table, n)| table.iter().flatten().all(|i| i < n));
        ensure!(inside, "an index is out of range for {data:?}");
        for_dtype!(data.datum_type(), T in any => self.copy::<T>(data, fill))
    }

    fn copy<T: Datum + Copy + Default>(&self, data: &Tensor, fill: &Tensor) -> TractResult<Tensor> {
        let fill = fill.try_as_plain_ram()?.as_slice::<T>()?.first().copied().unwrap_or_default();
        let Some((last, outer)) = self.0.split_last() else { return Ok(data.clone()) };
        let plain = data.try_as_plain_ram()?;
        let from = plain.as_slice::<T>()?;
        let width = data.shape().last().copied().unwrap_or(1);
        let straight = last.iter().enumerate().all(|(i, at)| *at == Some(i));
        let mut made: Vec<T> = Vec::with_capacity(self.shape().iter().product());
        for line in lines(outer, data.shape()) {
            match line.map(|line| &from[line * width..(line + 1) * width]) {
                Some(line) if straight => made.extend_from_slice(&line[..last.len()]),
                Some(line) => made.extend(last.iter().map(|at| at.map_or(fill, |at| line[at]))),
                None => made.resize(made.len() + last.len(), fill),
            }
        }
        Tensor::from_shape(&self.shape(), &made)
    }
}

/// For each line (all axes but the last) of the result, the line of the data.
fn lines(tables: &[Vec<Option<usize>>], shape: &[usize]) -> Vec<Option<usize>> {
    let mut all = vec![Some(0)];
    for (table, n) in tables.iter().zip(shape) {
        all = all.iter().flat_map(|line| table.iter().map(move |at| Some((*line)? * n + (*at)?))).collect();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_copied_by_the_tables() {
        let data = tensor2(&[[1i16, 2, 3], [4, 5, 6]]);
        let remap = Remap::new(vec![vec![Some(1), None, Some(0)], vec![Some(2), Some(2), None, Some(0)]]);
        let made = remap.apply(&data, &tensor0(-1i16)).unwrap();
        assert_eq!(made, tensor2(&[[6i16, 6, -1, 4], [-1, -1, -1, -1], [3, 3, -1, 1]]));
        let outside = Remap::new(vec![vec![Some(2)], vec![Some(0)]]);
        assert!(outside.apply(&data, &tensor0(0i16)).is_err());
    }
}
