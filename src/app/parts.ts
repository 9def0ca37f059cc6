import type { NodeFacts } from "../cluster/nodes.ts";
import type { TimeBase } from "../cluster/time-base.ts";
import type { SystemClock } from "../kit/clock.ts";
import type { Closing } from "../kit/closing.ts";
import type { Operation } from "../kit/operation.ts";
import { type AccessPart, openAccess } from "./access.ts";
import { type AuditPart, openAuditPart } from "./audit.ts";
import { openClusterPart } from "./cluster.ts";
import { type EnginePart, openEngine } from "./engine.ts";
import { type IdentityPart, openIdentity } from "./identity.ts";
import { type MembersPart, openMembers } from "./members.ts";
import { openOutboxPart } from "./outbox.ts";
import { foldParts, type Host, type Part } from "./part.ts";
import { openRealtime, type RealtimePart } from "./realtime.ts";
import { openRecord, type RecordPart } from "./record.ts";
import { openStreamsPart } from "./streams.ts";
import { openTopicsPart } from "./topics.ts";

export interface Parts {
  identity: IdentityPart;
  audit: AuditPart;
  engine: EnginePart;
  realtime: RealtimePart;
  members: MembersPart;
  access: AccessPart;
  record: RecordPart;
  /** All of them as one. */
  all: ReturnType<typeof foldParts>;
}

export interface PartsNeeds {
  clock: SystemClock;
  time: TimeBase;
  closers: Pick<Closing, "push">;
  /** Where this node listens; empty before it does. */
  url: () => string;
  loopProgress: () => NodeFacts["loops"];
  /** Every operation of the server; called once all parts are open. */
  registry: () => readonly Operation[];
}

/** Opens every part, low to high; what was opened is closed again when a later one fails. */
export async function openParts(host: Host, needs: PartsNeeds): Promise<Parts> {
  const { clock, time, url, loopProgress, registry } = needs;
  const closing = <P extends Part>(name: string, part: P): P => {
    if (part.close) needs.closers.push(name, part.close);
    return part;
  };

  const identity = closing(
    "identity",
    await openIdentity(host, { reseal: (session, again) => engine.secrets.reseal(session, again) }),
  );
  const { keyring, tenancy, keys } = identity;
  const audit = closing("audit", openAuditPart(host, { keyring, tenancy }));
  const outbox = openOutboxPart(host);
  const engine = openEngine(host, { keyring, tenancy, outbox });
  const streams = openStreamsPart(host, { ...engine, tenancy });
  const topics = openTopicsPart(host);
  const realtime = openRealtime(host, { feeds: engine.feeds, topicFeeds: topics.topicFeeds });
  const members = closing("members", openMembers(host, { clock, time, keys, keyring, url, loopProgress }));
  const access = openAccess(host, {
    ...{ identity, registry },
    forgetEnvironment: engine.forgetEnvironment,
    forgetKey: members.forgetKey,
    pastDecisions: audit.audit.pastDecisions,
  });
  const record = openRecord(host, {
    engine,
    parts: [engine, streams, topics, realtime, outbox],
    callTrail: audit.callTrail((call) => access.may(call, "orgs:read", { type: "org", id: "*" })),
  });
  const others = [engine, streams, record, outbox, realtime, topics, members, access, audit, identity];
  const { duties } = foldParts(others);
  const cluster = closing("cluster", openClusterPart(host, { identity, access, members, time, duties }));
  return { identity, audit, engine, realtime, members, access, record, all: foldParts([...others, cluster]) };
}
