//! The whole tier: a real Kubernetes whose one node runs our image.
