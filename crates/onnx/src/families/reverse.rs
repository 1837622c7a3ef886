//! Reversing a prefix of each sequence of a batch.

use edgecut_graph::Attr;

use crate::{
    compose::one,
    error::Result,
    lowering::{Call, Lower, Value},
};

pub(super) const OPS: &[(&str, Lower)] = &[("ReverseSequence", reverse_sequence)];

fn reverse_sequence(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (x, lengths) = (call.input(0)?, call.input(1)?);
    let (time, batch) = (call.axis(call.int("time_axis", 0), x)?, call.axis(call.int("batch_axis", 1), x)?);
    if time == batch {
        return Err("time_axis and batch_axis are the same".to_string());
    }
    let attrs = vec![("seq_axis", Attr::Int(time as i64)), ("batch_axis", Attr::Int(batch as i64))];
    one(call.op("reverse_sequence", &[x, lengths], attrs)?)
}
