//! Decoders: models that compute one step of a sequence and carry states from step to step, such as the caches of a
//! language model.
//!
//! All sizes of a step are fixed: the states have room for the whole context, and the mask says how much of it is filled.
//!
//! | module | what it does |
//! |---|---|
//! | `config` | `genai_config.json`, which ONNX Runtime's model builder writes next to a decoder |
//! | `state` | which inputs of a model are states |
//! | `sizes` | a decoder's file, and the sizes of its dimensions |
//! | `prefill` | steps of several tokens, which read prompts |
//! | `interface` | the inputs and outputs of a step, by their roles |

mod config;
pub(crate) mod interface;
pub(crate) mod prefill;
pub(crate) mod sizes;
mod state;
