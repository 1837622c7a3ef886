//! Shards that end where those of their neighbours do.

use crate::split_plan::model;
use edgecut::{
    graph::{Granularity, OperatorId},
    plan::split::{
        SplitOptions,
        split_option::{ResultLayout, SplitOption},
    },
    profile::items,
};

/// Rows of a result that are read in pairs are computed in pairs: all shards of a tall image, and those of an option of their own
/// where pairs are too coarse for every ratio.
#[test]
fn shards_of_a_producer_end_where_those_of_its_reader_do() {
    for (height, grains) in [(256, vec![2, 1]), (16, vec![1, 2])] {
        let text = format!(
            "#[version = \"0.0.5\"]\ndef @main(%x: Tensor[(1, 4, {height}, 16), float32]) {{\n  %0 = nn.relu(%x);\n  \
             nn.max_pool2d(%0, pool_size=[2, 2], strides=[2, 2], padding=[0, 0, 0, 0])\n}}\n"
        );
        let graph = model(&text);
        let groups: Vec<Vec<OperatorId>> =
            items(&graph, Granularity::Op).into_iter().map(|item| item.operators).collect();
        let options = SplitOptions::of(&graph, &groups);
        let of_rows = |option: &&SplitOption| matches!(&option.layout, ResultLayout::Split(side) if side.axis == 2);
        let found: Vec<u64> = options.group(0).iter().filter(of_rows).map(|option| option.grain).collect();
        assert_eq!(found, grains, "{height} rows: {:?}", options.group(0));
        for option in options.group(0).iter().filter(of_rows) {
            let divisions = options.divisions(&groups[0], option, &[0.3, 0.7]).unwrap();
            assert!(divisions.values().all(|division| division.cuts[1].is_multiple_of(option.grain)), "{divisions:?}");
        }
    }
}

/// A reader whose grain is finer gets an option with that of the producer, here of slices that a reshape keeps together.
#[test]
fn shards_of_a_reader_end_where_those_of_its_producer_do() {
    let text = "#[version = \"0.0.5\"]\ndef @main(%x: Tensor[(1, 8, 16), float32]) {\n  \
                %0 = reshape(%x, newshape=[1, 128]);\n  nn.relu(%0)\n}\n";
    let graph = model(text);
    let groups: Vec<Vec<OperatorId>> = items(&graph, Granularity::Op).into_iter().map(|item| item.operators).collect();
    let options = SplitOptions::of(&graph, &groups);
    let grains = |group: usize| options.group(group).iter().map(|option| option.grain).collect::<Vec<_>>();
    assert_eq!((grains(0), grains(1)), (vec![16], vec![1, 16]), "{:?}", options.group(1));
}
