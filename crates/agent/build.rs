//! Generates the client and the server of an agent's gRPC service. Its messages are types of this crate, in
//! `src/protocol/message.rs`, which says what each call does.

use tonic_build::manual::{Builder, Method, MethodBuilder, Service};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let service = Service::builder().name("Agent").package("edgecut.v2");
    let calls = [
        call("Describe", "message::DescribeRequest", "message::DescribeReply"),
        call("Clock", "message::ClockRequest", "message::ClockReply"),
        call("Probe", "message::ProbeRequest", "probe::ProbeSample").server_streaming(),
        call("Profile", "message::ProfileRequest", "message::ProfileReply").client_streaming().server_streaming(),
        call("Run", "message::RunRequest", "message::RunReply").client_streaming().server_streaming(),
        call("Transfer", "message::TransferRequest", "message::TransferReply").client_streaming(),
        call("Absorb", "message::AbsorbRequest", "message::AbsorbReply").client_streaming().server_streaming(),
    ];
    let service = calls.into_iter().fold(service, |service, call| service.method(call.build()));
    Builder::new().compile(&[service.build()]);
}

/// A call with the headers of its request and its reply.
fn call(name: &str, request: &str, reply: &str) -> MethodBuilder {
    let frame = |header: &str| format!("crate::protocol::frame::Frame<crate::protocol::{header}>");
    let method = Method::builder().name(name.to_lowercase()).route_name(name);
    method.input_type(frame(request)).output_type(frame(reply)).codec_path("crate::protocol::frame::FrameCodec")
}
