//! The heap in large pages: what a program that prepared its heap allocates lies where the system was asked for them.

use std::alloc::{GlobalAlloc, Layout, System};

use edgecut::engine::{CountingAllocator, configure_heap, prepare_heap, release_freed};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Whether the mapping that holds `address` was advised to have large pages; `None` where the system does not say.
fn is_advised(address: usize) -> Option<bool> {
    let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
    let mut is_here = false;
    for line in maps.lines() {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let ends = range.map(|(from, to)| (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16)));
        if let Some((Ok(from), Ok(to))) = ends {
            is_here = (from..to).contains(&address);
        } else if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| is_here) {
            return Some(flags.split_whitespace().any(|flag| flag == "hg"));
        }
    }
    None
}

fn main() {
    let known = Box::new(0u8);
    let tells = is_advised(&raw const *known as usize).is_some();
    if !tells || !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() || !cfg!(target_env = "gnu") {
        eprintln!("SKIPPED: this system has no large pages to ask for, or does not say what was asked for");
        return;
    }
    configure_heap();
    for megabytes in [1, 8, 100] {
        let block = vec![1u8; megabytes << 20];
        let middle = block.as_ptr() as usize + block.len() / 2;
        assert_eq!(is_advised(middle), Some(true), "{megabytes} MiB");
        assert!(block.iter().all(|byte| *byte == 1));
    }
    // What grows is moved there too.
    let mut grown: Vec<u64> = Vec::new();
    (0..4_000_000).for_each(|i| grown.push(i));
    assert_eq!(is_advised(grown.as_ptr() as usize + (8 << 20)), Some(true));
    assert!(grown.iter().enumerate().all(|(i, value)| *value == i as u64));
    // What a C library allocates by itself, after room was made for it: also where freed memory was returned to the system.
    for _ in 0..2 {
        release_freed();
        prepare_heap(200 << 20);
        let layout = Layout::array::<u8>(20 << 20).unwrap();
        // SAFETY: the layout is not empty, and each block is freed once, with its layout.
        let blocks: Vec<*mut u8> = (0..8).map(|_| unsafe { System.alloc(layout) }).collect();
        for block in &blocks {
            assert_eq!(is_advised(*block as usize + layout.size() / 2), Some(true));
        }
        // SAFETY: as above.
        blocks.into_iter().for_each(|block| unsafe { System.dealloc(block, layout) });
    }
}
