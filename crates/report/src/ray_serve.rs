//! A plan as an application of Ray Serve, which deploys and serves its ONNX models.

/// The application, a Python module next to the manifest and the models: `serve run ray_serve:app`.
pub const APPLICATION: &str = include_str!("ray_serve.py");
