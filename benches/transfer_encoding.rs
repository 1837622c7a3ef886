//! How fast tensors are encoded and decoded for transfers in fewer bits, in GB of float32 a second on one core.

use std::{error::Error, hint::black_box, time::Instant};

use edgecut::{
    agent::protocol::encoding::{decode, encode, encoded_type},
    graph::{DType, TensorData, TensorType},
    plan::TransferFormat,
    values::seeded,
};

/// How often each is timed; the median counts.
const REPEATS: usize = 50;

fn main() -> Result<(), Box<dyn Error>> {
    let ty = TensorType::of(DType::F32, &[1, 64, 112, 112]);
    let data = seeded("activation", &ty)?;
    for format in [TransferFormat::F16, TransferFormat::Int8] {
        let wire = encoded_type(format, &ty)?;
        let shape = wire.shape.fixed().ok_or("the size is known")?;
        let content = TensorData::new(wire.dtype, shape.to_vec(), encode(format, &data))?;
        let encoding = rate(&data, || drop(black_box(encode(format, black_box(&data)))));
        let decoding = rate(&data, || drop(black_box(decode(format, &ty, content.clone()))));
        println!("{format}: encodes {encoding:.1} GB/s, decodes {decoding:.1} GB/s of float32");
    }
    Ok(())
}

fn rate(data: &TensorData, work: impl Fn()) -> f64 {
    let timed = |_| {
        let begin = Instant::now();
        work();
        begin.elapsed().as_secs_f64()
    };
    let mut times: Vec<f64> = (0..REPEATS).map(timed).collect();
    times.sort_by(f64::total_cmp);
    data.bytes().len() as f64 / times[REPEATS / 2] / 1e9
}
