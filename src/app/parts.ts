import type { Sequences } from "../edge/call.ts";
import type { SystemClock } from "../kit/clock.ts";
import type { Closing } from "../kit/closing.ts";
import type { Operation } from "../kit/operation.ts";
import type { NodeFacts } from "../nodes/nodes.ts";
import type { TimeBase } from "../nodes/time-base.ts";
import { type AccessPart, openAccess } from "./access.ts";
import { openEmitRights } from "./caller-now.ts";
import { type MembersPart, openClusterPart, openMembers, openOverviewPart } from "./cluster.ts";
import { type EnginePart, openEngine } from "./engine.ts";
import type { IdentityNeeds, IdentityPart } from "./identity.ts";
import { openAlertsPart, openIntegrationsPart } from "./integrations.ts";
import { openSequences, openTopicsPart } from "./log.ts";
import { openOutboxPart } from "./outbox.ts";
import { foldParts, type Host, type Part } from "./part.ts";
import { openProjectionsPart, openQueryPart } from "./projections.ts";
import { openRealtime, type RealtimePart } from "./realtime.ts";
import {
  type AuditPart,
  type DebugPart,
  openAuditPart,
  openDebugPart,
  openExportsPart,
  openFlowPart,
  openRecord,
  openUsagePart,
  type RecordPart,
} from "./record.ts";
import { openRepairsPart } from "./repairs.ts";
import { type AppRights, openRights } from "./rights.ts";
import { openStatePart } from "./state.ts";
import { openSchemasPart, openStreamsPart } from "./streams.ts";

export interface Parts extends IdentityNeeds {
  identity: IdentityPart;
  audit: AuditPart;
  engine: EnginePart;
  realtime: RealtimePart;
  members: MembersPart;
  access: AccessPart;
  rights: AppRights;
  debug: DebugPart;
  record: RecordPart;
  sequences: Sequences;
  /** All of them as one. */
  all: ReturnType<typeof foldParts>;
}

export interface PartsNeeds {
  identity: IdentityPart;
  clock: SystemClock;
  time: TimeBase;
  closers: Pick<Closing, "push">;
  /** Where this node listens; empty before it does. */
  url: () => string;
  loopProgress: () => NodeFacts["loops"];
  /** Every operation of the server; called once all parts are open. */
  registry: () => readonly Operation[];
}

/** Opens every part above the identity, low to high. When one fails, those that are open are closed again. */
export function openParts(host: Host, needs: PartsNeeds): Parts {
  const { identity, clock, time, url, loopProgress, registry } = needs;
  const opened: Part[] = [];
  const open = <P extends Part>(name: string, part: P): P => {
    if (part.close) needs.closers.push(name, part.close);
    opened.push(part);
    return part;
  };

  open("identity", identity);
  const { keyring, tenancy, keys } = identity;
  const audit = open("audit", openAuditPart(host, { keyring, tenancy }));
  const rights = openRights(host, identity);
  const outbox = open("outbox", openOutboxPart(host));
  const schemasPart = open("schemas", openSchemasPart(host));
  const { schemas } = schemasPart;
  const { flow } = open("flow", openFlowPart(host));
  const { usage } = open("usage", openUsagePart(host));
  const engine = open(
    "engine",
    openEngine(host, {
      ...{ keyring, outbox, schemas, flow, usage, may: rights.may },
      emitRights: openEmitRights(host, { identity, gate: rights.gate, registry }),
    }),
  );
  outbox.redoneBy("delayed", ({ payload, metadata }) => engine.requeueDelayed(payload, metadata));
  open("streams", openStreamsPart(host, engine, schemasPart, rights.may));
  const topics = open("topics", openTopicsPart(host, flow, engine.quotas));
  const { feeds } = engine;
  const realtime = open(
    "realtime",
    openRealtime(host, { feeds, topicFeeds: topics.topicFeeds, tenancy, bury: outbox.bury }),
  );
  outbox.redoneBy("group", realtime.redeliver);
  const query = open("query", openQueryPart(host, identity));
  const { waits } = open("projections", openProjectionsPart(host, { ...engine, ...query }));
  const sequences = openSequences({
    logs: { events: engine.sequences, topics: topics.sequences },
    waits,
  });
  open("state", openStatePart(host, engine));
  const integrations = open("integrations", openIntegrationsPart(host, { keyring, engine, may: rights.may }));
  const members = open("members", openMembers(host, { clock, time, keys, keyring, url, loopProgress }));
  const access = open(
    "access",
    openAccess(host, {
      ...{ identity, rights, registry, guard: engine.guard },
      forgetEnvironment: engine.forgetEnvironment,
      forgetKey: members.forgetKey,
      pastDecisions: audit.audit.pastDecisions,
    }),
  );
  const debug = open("debug", openDebugPart(host));
  open("exports", openExportsPart(host));
  open("repairs", openRepairsPart(host, { engine, identity, rights, registry }));
  // The last ones look at what all others have opened.
  const callTrail = audit.callTrail((call) => rights.require(call, "orgs:read", { type: "org", id: "*" }));
  const record = open(
    "record",
    openRecord(host, { engine, callTrail, forgetCaptures: debug.clear, parts: [...opened] }),
  );
  members.balancedBy(record.troubles);
  const alerts = open(
    "alerts",
    openAlertsPart(host, {
      ...{ keyring, engine, record },
      environmentName: async (id) => (await tenancy.findEnvironment(id))?.name,
    }),
  );
  const { duties } = foldParts(opened);
  const cluster = open("cluster", openClusterPart(host, { identity, rights, members, time, duties }));
  open("overview", openOverviewPart(host, { flow, record, cluster, engine, rights }));
  const all = foldParts(opened);
  return {
    ...{ identity, audit, engine, realtime, members, access, rights, debug, record, sequences, all },
    async reseal(session, again) {
      await engine.secrets.reseal(session, again);
      await integrations.reseal(session, again);
      await access.reseal(session, again);
      await alerts.reseal(session, again);
    },
  };
}
