//! Counts the requests in progress of each connection, from their start to the end of their reply.

use std::task::{Context, Poll};

use http_body_util::BodyExt;
use tonic::{
    body::Body,
    codegen::{
        BoxFuture, Service,
        http::{Request, Response},
    },
    server::NamedService,
};

use super::connection_info::ConnectionInfo;

/// A gRPC service whose requests keep their connections from being closed.
#[derive(Debug, Clone)]
pub(super) struct CountedRequests<S>(pub S);

impl<S: NamedService> NamedService for CountedRequests<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for CountedRequests<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = BoxFuture<Response<Body>, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let connection = request.extensions().get::<ConnectionInfo>();
        let under_way = connection.map(|connection| connection.open.begin_request());
        let response = self.0.call(request);
        Box::pin(async move {
            let held = |body: Body| {
                Body::new(body.map_frame(move |frame| {
                    // Dropped with the body.
                    let _ = &under_way;
                    frame
                }))
            };
            Ok(response.await?.map(held))
        })
    }
}
