import { filtersOf } from "../wire/attributes.ts";
import { type KnownOptions, requireBounds, requireKnown } from "../wire/known-options.ts";
import { jsonToSend } from "../wire/payload.ts";
import { all, count, fieldsOf, type Message, text } from "../wire/read.ts";
import { once, safe } from "../wire/retry.ts";
import type { Transport } from "../wire/transport.ts";
import { functionIdOf } from "./client-functions.ts";
import type {
  CausalityCalls,
  CauseEdge,
  CauseNode,
  Repair,
  RepairCalls,
  RepairForecast,
  RepairItem,
  RepairSelection,
  ReplayForecast,
  ReplayPlace,
  ReplaySelection,
} from "./repair-types.ts";

const outcomes = ["pending", "done", "over", "refused", "failed", "undone"] as const;

const readCounts = (message: Message, isReplay: boolean): Repair["counts"] =>
  Object.fromEntries(
    [...outcomes, ...(isReplay ? (["skipped", "scanned"] as const) : [])].map((name) => [
      name,
      count(message[name]),
    ]),
  ) as never;

const readPlaces = (message: Message): Repair["replay"] & object => ({
  position: count(message.position),
  fromPosition: count(message.fromPosition),
  toPosition: count(message.toPosition),
  ...(message.liveFrom !== undefined && { liveFrom: count(message.liveFrom) }),
});

const repairFields = fieldsOf<Repair>()({
  texts: ["id", "action", "status", "phase", "reason", "startedBy", "note", "createdAt"],
  given: ["endedAt"],
});
const readRepair = (message: Message): Repair => ({
  ...repairFields(message),
  counts: readCounts((message.counts ?? {}) as Message, message.action === "replay"),
  ...(message.action === "replay" && { replay: readPlaces(message) }),
});

const readItem: (message: Message) => RepairItem = fieldsOf<RepairItem>()({
  ...{ texts: ["runId", "functionId", "outcome", "error", "at"], given: ["eventId"] },
});

type ReplaySample = ReplayForecast["samples"][number];
const readReplaySample: (message: Message) => ReplaySample = fieldsOf<ReplaySample>()({
  ...{ texts: ["eventId", "name", "at"], counts: ["position"], flags: ["hasRun"] },
});

type RepairSample = RepairForecast["samples"][number];
const readSample: (message: Message) => RepairSample = fieldsOf<RepairSample>()({
  texts: ["runId", "functionId", "status", "eventName", "createdAt"],
});

const timeOf = (at: Date | string) => (at instanceof Date ? at.toISOString() : at);

const knownFilter: KnownOptions<RepairSelection> = {
  ...{ functionId: true, eventId: true, statuses: true, search: true, since: true, until: true },
  ...{ compensationFailed: true, errorGroup: true, eventName: true, errorText: true, attributes: true },
};
const knownEvents: KnownOptions<ReplaySelection> = {
  ...{ pattern: true, filter: true, from: true, to: true, again: true },
};

/** A word that the server passes over, and a bound without a value, would select more than was meant. */
function filterOf(selection: RepairSelection) {
  requireKnown("the filter of a repair", selection, knownFilter);
  requireBounds("the filter of a repair", selection, Object.keys(knownFilter));
  const { since, until, attributes, ...filter } = selection;
  return {
    ...filter,
    ...(since !== undefined && { since: timeOf(since) }),
    ...(until !== undefined && { until: timeOf(until) }),
    ...(attributes && { attributes: filtersOf(attributes) }),
  };
}

const placeOf = (place: ReplayPlace | undefined, position: string, time: string) =>
  place === undefined ? {} : typeof place === "number" ? { [position]: place } : { [time]: timeOf(place) };

function eventsOf(selection: ReplaySelection) {
  requireKnown("a replay", selection, knownEvents);
  requireBounds("a replay", selection, ["pattern", "filter", "from", "to"]);
  const { from, to, ...events } = selection;
  return {
    ...events,
    ...placeOf(from, "fromPosition", "since"),
    ...placeOf(to, "toPosition", "until"),
  };
}

export function repairCalls(transport: Transport): RepairCalls {
  const ask = (method: string, message: object, options = safe) =>
    transport.rpc<Message>(`RepairService/${method}`, message, options);
  return {
    async preview(action, filter) {
      const answer = await ask("PreviewRepair", { action, filter: filterOf(filter) });
      return {
        totalCount: count(answer.totalCount),
        truncated: answer.truncated === true,
        byStatus: Object.fromEntries(
          Object.entries((answer.byStatus ?? {}) as Message).map(([status, runs]) => [status, count(runs)]),
        ),
        samples: all(answer.samples, readSample),
      };
    },
    async start(action, { filter, output, ...options }) {
      const outputJson = output === undefined ? {} : { outputJson: jsonToSend(output, "output") };
      const message = { action, filter: filterOf(filter), ...options, ...outputJson };
      return readRepair(await ask("StartRepair", message, once));
    },
    async previewReplay(target, events = {}) {
      const answer = await ask("PreviewReplay", {
        functionId: functionIdOf(target),
        events: eventsOf(events),
      });
      return {
        ...{ fromPosition: count(answer.fromPosition), toPosition: count(answer.toPosition) },
        ...{ scanned: count(answer.scanned), truncated: answer.truncated === true },
        ...{ matched: count(answer.matched), withRun: count(answer.withRun) },
        ...{ toStart: count(answer.toStart), samples: all(answer.samples, readReplaySample) },
      };
    },
    async replayEvents(target, { thenLive, reason, ...events } = {}) {
      const message = { functionId: functionIdOf(target), events: eventsOf(events), thenLive, reason };
      return readRepair(await ask("StartReplay", message, once));
    },
    get: async (id) => readRepair(await ask("GetRepair", { id })),
    async list(options = {}) {
      const answer = await ask("ListRepairs", options);
      return { repairs: all(answer.repairs, readRepair), nextCursor: text(answer.nextCursor) };
    },
    async items(id, options = {}) {
      const answer = await ask("ListRepairItems", { id, ...options });
      return { items: all(answer.items, readItem), nextCursor: text(answer.nextCursor) };
    },
    pause: async (id) => readRepair(await ask("PauseRepair", { id })),
    continue: async (id) => readRepair(await ask("ContinueRepair", { id })),
    stop: async (id) => readRepair(await ask("StopRepair", { id })),
  };
}

const readThing = (message: Message): CauseNode => ({
  ...{ kind: message.kind as CauseNode["kind"], id: text(message.id), name: text(message.name) },
  ...{ status: text(message.status), at: text(message.at), depth: count(message.depth) },
  ...(message.entityId !== undefined && {
    entity: { id: text(message.entityId), version: count(message.entityVersion) },
  }),
});

const readLink = (message: Message): CauseEdge => ({
  cause: { kind: message.causeKind as CauseNode["kind"], id: text(message.causeId) },
  effect: { kind: message.effectKind as CauseNode["kind"], id: text(message.effectId) },
  relation: message.relation as CauseEdge["relation"],
});

export function causalityCalls(transport: Transport): CausalityCalls {
  const rpc = (method: string, message: unknown, options = safe) =>
    transport.rpc<Message>(`CausalityService/${method}`, message, options);
  return {
    async get(kind, id, options = {}) {
      const answer = await rpc("GetCausality", { kind, id, ...options });
      return {
        things: all(answer.things, readThing),
        links: all(answer.links, readLink),
        truncated: answer.truncated === true,
        hidden: count(answer.hidden),
      };
    },
    async cancelSubtree(runId, { reason = "" } = {}) {
      const answer = await rpc("CancelSubtree", { runId, reason }, once);
      return {
        cancelled: (answer.cancelled ?? []) as string[],
        over: count(answer.over),
        hidden: count(answer.hidden),
        truncated: answer.truncated === true,
      };
    },
  };
}
