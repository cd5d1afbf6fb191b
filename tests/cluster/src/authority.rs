//! The certificate authority of one test cluster, and the key that signs its service accounts' tokens.

use std::{fs, path::Path};

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

/// Writes `ca.crt`, `ca.key`, `server.crt`, `server.key` (the API server's), `admin.crt`, `admin.key` (may do
/// everything), `sa.key` and `sa.pub` (a key pair of P-256 that signs tokens) to the folder.
///
/// # Errors
/// If one cannot be made or written.
pub fn write(dir: &Path) -> Result<()> {
    let mut params = named("test-ca", None);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    fs::write(dir.join("ca.crt"), authority.pem())?;
    fs::write(dir.join("ca.key"), authority.key().serialize_pem())?;
    let tokens = KeyPair::generate()?;
    fs::write(dir.join("sa.key"), tokens.serialize_pem())?;
    fs::write(dir.join("sa.pub"), tokens.public_key_pem())?;

    let issue = |name: &str, params: CertificateParams| -> Result<()> {
        let key = KeyPair::generate()?;
        fs::write(dir.join(format!("{name}.crt")), params.signed_by(&key, &authority)?.pem())?;
        Ok(fs::write(dir.join(format!("{name}.key")), key.serialize_pem())?)
    };
    let mut server = named("kube-apiserver", None);
    server.subject_alt_names =
        CertificateParams::new(["127.0.0.1", "localhost", "kubernetes.default.svc"].map(String::from))?.subject_alt_names;
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    issue("server", server)?;
    let mut admin = named("admin", Some("system:masters"));
    admin.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    issue("admin", admin)
}

fn named(name: &str, organization: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    if let Some(organization) = organization {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    params
}
