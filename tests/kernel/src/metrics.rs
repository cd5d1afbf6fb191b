//! What `/metrics` says.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::{Context, Result, ensure};

/// How long the agent may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// One reading of all metrics.
#[derive(Debug)]
pub struct Reading(String);

impl Reading {
    /// Reads them.
    ///
    /// # Errors
    /// If there is no answer, or not the right one.
    pub fn of(address: SocketAddr) -> Result<Self> {
        get(address, "/metrics").map(Self)
    }

    /// The number behind a name with its labels as they are written: `problem_counter{reason="TaskHung"}`. What was never counted is 0.
    #[must_use]
    pub fn value(&self, series: &str) -> f64 {
        let found = self.0.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok());
        found.unwrap_or(0.0)
    }

    /// Everything that was said.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }
}

/// The body of an answer.
fn get(address: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).with_context(|| format!("cannot reach {address}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer has no head")?;
    ensure!(head.contains(" 200 "), "{head}");
    Ok(body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_found_by_its_whole_name() {
        let reading = Reading("# TYPE a counter\na{b=\"c\"} 1\na{b=\"cd\"} 2\naa 3\na 4.5\n".into());
        assert_eq!(
            (reading.value("a{b=\"c\"}"), reading.value("a{b=\"cd\"}"), reading.value("aa"), reading.value("a")),
            (1.0, 2.0, 3.0, 4.5)
        );
        assert_eq!(reading.value("b"), 0.0);
    }
}
