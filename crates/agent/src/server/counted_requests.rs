//! Counts the requests in progress of each connection, from their start to the end of their reply. A reply that the client
//! leaves no room for keeps no connection.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use http_body::{Frame, SizeHint};
use tonic::{
    body::Body,
    codegen::{
        BoxFuture, Service,
        http::{Request, Response},
    },
    server::NamedService,
};

use super::{connection_info::ConnectionInfo, open_connections::RequestUnderWay};

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
            let response = response.await?;
            Ok(response.map(|body| Body::new(CountedReply::new(body, under_way))))
        })
    }
}

/// A reply whose request is under way as long as it is asked for frames: HTTP/2 asks for one when the client has room for it.
struct CountedReply {
    body: Body,
    request: Option<RequestUnderWay>,
}

impl CountedReply {
    fn new(body: Body, request: Option<RequestUnderWay>) -> CountedReply {
        let reply = CountedReply { body, request };
        reply.wait_for_client(true);
        reply
    }

    fn wait_for_client(&self, waits: bool) {
        if let Some(request) = &self.request {
            request.wait_for_client(waits);
        }
    }
}

impl http_body::Body for CountedReply {
    type Data = <Body as http_body::Body>::Data;
    type Error = <Body as http_body::Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        self.wait_for_client(false);
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        self.wait_for_client(frame.is_ready());
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
