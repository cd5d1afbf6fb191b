//! The infrastructure provider: carries power calls out, or loses, delays, refuses them; answers questions, or lies.

use std::collections::VecDeque;

use controller_core::{
    process::{Answer, Evidence},
    provider::{Provider as Settings, ProviderKind},
    state::Refusal,
    time::Time,
    view::InstanceLook,
};

use crate::{script::Fate, seconds};

/// The provider of all clusters.
#[derive(Clone, Debug, Default)]
pub struct Infrastructure {
    /// How the next calls are treated.
    pub fates: VecDeque<Fate>,
    /// How the next questions are answered: a lie about all machines or only one.
    pub lies: VecDeque<bool>,
    /// Power calls that were carried out.
    pub log: Vec<Executed>,
    /// Calls that were accepted and failed afterwards, by intent.
    pub failed: Vec<String>,
    /// Answers "no such instance" for an instance that exists, with when and for whom.
    pub lied: Vec<(String, Time)>,
}

/// A power call that was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executed {
    /// UID of the Machine.
    pub machine_uid: String,
    /// Its intent.
    pub intent_id: String,
    /// When.
    pub at: Time,
    /// Which controller and which run of it sent it.
    pub by: (usize, u32),
}

/// What comes of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Treatment {
    /// When it is carried out; none: never.
    pub executes_at: Option<Time>,
    /// What the caller sees; none: a timeout.
    pub answer: Answer,
    /// It fails after it was accepted.
    pub fails: bool,
}

impl Infrastructure {
    /// Treats a call as the next fate says.
    pub fn call(&mut self, exists: bool, now: Time) -> Treatment {
        let fate = self.fates.pop_front().unwrap_or(Fate::Obeyed);
        let refused = |how, retry_at| Treatment { executes_at: None, answer: Answer::Refused { how, retry_at }, fails: false };
        let unknown = |executes_at| Treatment { executes_at, answer: Answer::Unknown, fails: false };
        let issued = |executes_at, fails| Treatment {
            executes_at,
            answer: Answer::Issued { action_id: Some(format!("a{}", now.millis())), at: now },
            fails,
        };
        match fate {
            Fate::Busy => refused(Refusal::Later, None),
            Fate::RateLimited => refused(Refusal::RateLimited, Some(now + seconds(90))),
            Fate::Unauthorized => refused(Refusal::Auth, None),
            _ if !exists => refused(Refusal::NotFound, None),
            Fate::NotFound => refused(Refusal::NotFound, None),
            Fate::Obeyed => issued(Some(now), false),
            Fate::Fails => issued(None, true),
            Fate::RequestLost | Fate::ErrorNotDone => unknown(None),
            Fate::AnswerLost | Fate::ErrorButDone => unknown(Some(now)),
            Fate::Late(after) => unknown(Some(now + seconds(u64::from(after)))),
        }
    }

    /// Whether an instance exists.
    pub fn look(&mut self, uid: &str, exists: bool, kind: ProviderKind, booting: bool, now: Time) -> InstanceLook {
        match self.lies.pop_front() {
            Some(true) => InstanceLook::NotFound { at: now, others_seen: false },
            Some(false) => {
                if exists {
                    self.lied.push((uid.to_owned(), now));
                }
                InstanceLook::NotFound { at: now, others_seen: true }
            }
            None if exists => InstanceLook::Present { at: now, booting: (kind == ProviderKind::Redfish).then_some(booting) },
            None => InstanceLook::NotFound { at: now, others_seen: true },
        }
    }

    /// What became of an intent, as far as this kind of provider can tell.
    #[must_use]
    pub fn evidence(&self, settings: &Settings, uid: &str, intent_id: &str, intent_at: Time, now: Time) -> Evidence {
        if self.failed.iter().any(|id| id == intent_id) {
            return Evidence::Made { action_id: None, at: intent_at, failed: true };
        }
        let from = intent_at - seconds(2);
        let found = match settings.kind {
            ProviderKind::HetznerRobot | ProviderKind::None => return Evidence::CannotTell { asked_at: now },
            ProviderKind::Redfish if !settings.last_reset_time => return Evidence::CannotTell { asked_at: now },
            ProviderKind::Webhook if !settings.lookup => return Evidence::CannotTell { asked_at: now },
            ProviderKind::Webhook | ProviderKind::CaphAnnotation => self.log.iter().find(|e| e.intent_id == intent_id),
            ProviderKind::HetznerCloud | ProviderKind::Redfish => self.log.iter().find(|e| e.machine_uid == uid && e.at >= from),
        };
        match found {
            Some(e) => Evidence::Made { action_id: None, at: e.at, failed: false },
            None => Evidence::NoTrace { asked_at: now },
        }
    }
}
