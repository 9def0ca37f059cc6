import { Type } from "@sinclair/typebox";
import type { Bus } from "../../../bus/bus.ts";
import type { Instant } from "../../../kit/clock.ts";
import { Fault, invalid, missing } from "../../../kit/fault.ts";
import type { Ids } from "../../../kit/ids.ts";
import { integrityRowsMax } from "../../../kit/limits.ts";
import { countedPage, pageSize } from "../../../kit/page.ts";
import { sql } from "../../../kit/sql.ts";
import type { LeaderWrite, Store } from "../../../store/store.ts";
import type { ConsumersOf } from "../../log/topics/service.ts";
import { violationsOf } from "../../record/integrity/rules.ts";
import type { IntegrityCheck } from "../../record/integrity/service.ts";
import type { OutboxEntry, PermitName } from "../../record/outbox/service.ts";
import type { GroupAnnouncer } from "../pubsub/moved-frames.ts";
import { matchesTokens, parsePattern, tokensOf } from "../pubsub/rules.ts";
import { type AckVerdict, type GroupChange, openAcks } from "./ack.ts";
import { changed, changesOf, type GroupInput, type GroupName, keyOf } from "./definition.ts";
import { redeliver } from "./given-up.ts";
import { groupDelayMsMax } from "./limits.ts";
import type { LocalReadersDeps } from "./local-readers.ts";
import type { GroupSubscriber } from "./member.ts";
import { type JoinedMember, keptUntil, openGroupMembership } from "./membership.ts";
import { createGroup, forgetLapsed, type NewGroup } from "./new-group.ts";
import {
  countGroups,
  deleteGroup,
  type GroupInside,
  type GroupKey,
  type GroupRow,
  type GroupStatus,
  getGroup,
  getListed,
  groupsOnTopics,
  holdGroup,
  insideOf,
  type ListedGroup,
  listGroups,
  updateSettings,
} from "./rows.ts";

export type { GroupInput, GroupName } from "./definition.ts";
export type { GroupSubscriber } from "./member.ts";
export type { JoinedMember } from "./membership.ts";
export type { ListedGroup } from "./rows.ts";

export interface ShownGroup extends ListedGroup {
  inside?: GroupInside;
}

export interface JoinRequest extends GroupName {
  /** The name that acknowledgements give; empty: the id of the subscription. */
  consumerId: string;
  clientId: string;
}

export interface AckRequest extends GroupName {
  eventId: string;
  /** Empty: whichever consumer holds the delivery. */
  consumerId: string;
  verdict: AckVerdict;
  /** Pause before a `nak` is redelivered; 0 and absent: the group's `redeliver_delay_ms`. */
  delayMs?: number | undefined;
}

export interface GroupPage {
  namespace: string | undefined;
  status: GroupStatus | undefined;
  limit: number | undefined;
  cursor: string | undefined;
}

export type Groups = ReturnType<typeof openGroups>;

export interface GroupsDeps extends Omit<LocalReadersDeps, "acks" | "onChanged" | "onMoved"> {
  announce: GroupAnnouncer;
  ids: Ids;
  bus: Bus;
  nodeId: string;
}

/** Nodes tell each other of groups with room or with something due. */
const MovedGroups = Type.Object({
  from: Type.String(),
  moved: Type.Unsafe<readonly GroupChange[]>(
    Type.Array(
      Type.Object({
        environmentId: Type.String(),
        groupId: Type.String(),
        dueAt: Type.Optional(Type.Number()),
      }),
    ),
  ),
});

/** Sends changes of groups to other nodes as hints; `onChanged`: to this node's members, and subscribers. */
function shareChanges(
  { bus, nodeId, announce }: Pick<GroupsDeps, "bus" | "nodeId" | "announce">,
  noteChanges: (changes: readonly GroupChange[]) => void,
) {
  const changes = bus.channel("groups.moved", MovedGroups);
  changes.listen(({ from, moved }) => {
    if (from !== nodeId) noteChanges(moved);
  });
  const publishChanges = (moved: readonly GroupChange[]) => {
    if (bus.kind === "nats") changes.publish({ from: nodeId, moved });
  };
  const onChanged = (moved: readonly GroupChange[]) => {
    noteChanges(moved);
    publishChanges(moved);
    for (const { environmentId, groupId } of moved) announce.moved(environmentId, groupId);
  };
  return { publishChanges, onChanged };
}

/** Answers how many groups it made: none where the name is taken. */
const openCreate =
  (deps: GroupsDeps) =>
  async (group: NewGroup): Promise<number> => {
    const made = await deps.store.write((session) => createGroup(session, deps, group));
    if (made > 0) deps.announce.changed("created", group.key);
    return made;
  };

/**
 * The group that a subscription names. A missing one is created behind `startAfter`, or at the end of its
 * log, and kept for `groupKeptMs` after its last member. Throws when one exists with another pattern or
 * filter.
 */
const openForSubscription =
  ({ store, clock }: GroupsDeps, create: ReturnType<typeof openCreate>) =>
  async (
    environmentId: string,
    name: string,
    wanted: WantedReads,
    startAfter: () => Promise<number | undefined>,
  ) => {
    const key = keyOf(environmentId, { name }, "consumerGroup");
    let group = await getGroup(store, key);
    if (!group) {
      // Another subscription may create it meanwhile: then this insert does nothing.
      const position = await startAfter();
      await create({ key, input: wanted, keptUntil: keptUntil(clock), startAfter: position });
      group = await getGroup(store, key);
      if (!group) throw missing("consumer group", name);
    }
    requireSameReads(group, wanted);
  };

async function listedOf(store: Store, key: GroupKey): Promise<ListedGroup> {
  const group = await getListed(store, key);
  if (!group) throw missing("consumer group", key.name);
  return group;
}

const readsIn = ({ store }: GroupsDeps) => ({
  get: async (environmentId: string, name: GroupName) => listedOf(store, keyOf(environmentId, name)),

  /** The group with what it is about to do. */
  async inspect(environmentId: string, name: GroupName): Promise<ShownGroup> {
    const group = await listedOf(store, keyOf(environmentId, name));
    return { ...group, inside: await insideOf(store, group) };
  },

  async list(environmentId: string, { namespace, status, limit, cursor }: GroupPage) {
    const filter = { environmentId, namespace: namespace || undefined, status };
    const after = cursor ? readCursor(cursor) : undefined;
    const { items, ...page } = await countedPage(
      pageSize(limit),
      (rowsMax) => listGroups(store, filter, { after, limit: rowsMax }),
      () => countGroups(store, filter),
      writeCursor,
    );
    return { groups: items, ...page };
  },
});

export function openGroups(deps: GroupsDeps) {
  const { store, clock, watch, announce } = deps;
  const { publishChanges, onChanged } = shareChanges(deps, (changes) => membership.noteChanges(changes));
  const acks = openAcks({ store, clock, watch, onChanged });
  const membership = openGroupMembership({ ...deps, acks, onChanged, onMoved: announce.moved });

  const create = openCreate(deps);

  return {
    /** The group gets what is logged from now on. `already_exists` for a name that is taken. */
    async create(environmentId: string, name: GroupName, input: GroupInput): Promise<ListedGroup> {
      const key = keyOf(environmentId, name);
      if ((await create({ key, input, keptUntil: null })) === 0)
        throw new Fault("already_exists", `consumer group ${key.name} exists in namespace ${key.namespace}`, {
          field: "name",
        });
      return listedOf(store, key);
    },

    ...readsIn(deps),

    /**
     * Takes over the settings that `paths` names, spelled as in the message; without `paths`, every setting
     * that is not empty. A delivery that is held keeps the deadline it was claimed with.
     */
    async update(environmentId: string, name: GroupName, input: GroupInput, paths?: readonly string[]) {
      const key = keyOf(environmentId, name);
      const changes = changesOf(paths, input);
      const group = await store.write(async (session) => {
        const before = await holdGroup(session, key);
        if (!before) throw missing("consumer group", key.name);
        const after = changed(before, input, changes, clock.now());
        await updateSettings(session, after);
        return after;
      });
      onChanged([{ environmentId, groupId: group.id, dueAt: clock.now() }]);
      announce.changed("updated", key);
      await membership.lookAt(key);
      return listedOf(store, key);
    },

    async delete(environmentId: string, name: GroupName) {
      const key = keyOf(environmentId, name);
      const group = await store.write(async (session) => {
        const found = await holdGroup(session, key);
        if (found) await deleteGroup(session, found);
        return found;
      });
      if (!group) throw missing("consumer group", key.name);
      publishChanges([{ environmentId, groupId: group.id, dueAt: clock.now() }]);
      announce.changed("deleted", key);
      await membership.lookAt(key);
    },

    /**
     * Takes part in the group until the member is stopped or its subscriber is told of the end. The
     * subscriber is asked to permit the group's pattern, now and after each change of it.
     */
    async join(
      environmentId: string,
      { consumerId, clientId, ...name }: JoinRequest,
      subscriber: GroupSubscriber,
    ): Promise<JoinedMember> {
      const key = keyOf(environmentId, name, "group_name");
      requireConsumerText("consumer_id", consumerId);
      requireConsumerText("client_id", clientId);
      const group = await getGroup(store, key);
      if (!group) throw missing("consumer group", key.name);
      await subscriber.permit(group.pattern);
      return membership.join(group, { consumerId, clientId }, subscriber);
    },

    forSubscription: openForSubscription(deps, create),

    /** For `ack_mode` manual. Resolves when it is durable: an acknowledged delivery never comes again. */
    async ack(environmentId: string, { eventId, consumerId, verdict, delayMs = 0, ...name }: AckRequest) {
      const key = keyOf(environmentId, name, "group_name");
      if (eventId === "") throw invalid("event_id", "must not be empty");
      if (delayMs < 0 || delayMs > groupDelayMsMax)
        throw invalid("redeliver_delay_ms", `must be from 0 to ${groupDelayMsMax}`);
      await acks.ack({ ...key, eventId, consumerId, verdict, delayMs: delayMs > 0 ? delayMs : undefined });
    },

    /** Makes a delivery that was given up due again; throws what stands against it. */
    redeliver: async (letter: OutboxEntry, permit: PermitName) =>
      onChanged([await redeliver(deps, letter, permit)]),

    /** The tick of loop `groups.look`: heartbeats, silent members, deliveries due without a hint. */
    lookOnce: membership.lookOnce,

    /** The tick of loop `groups.refresh`: changes that other nodes made and whose hint was lost. */
    async refreshOnce() {
      // Alone with its store, this node made every change.
      if (store.isShared) await membership.refreshOnce();
    },

    /** The tick of loop `groups.forget`, on the node that leads `retention`. */
    forgetOnce: (write: LeaderWrite) => forgetLapsed(deps, write),

    /** Resolves once nothing is on its way to the store. */
    async settled() {
      await membership.settled();
      await acks.drain();
    },
  };
}

const consumerIdBytesMax = 200;

function requireConsumerText(field: "consumer_id" | "client_id", value: string): void {
  if (Buffer.byteLength(value) > consumerIdBytesMax || /\p{Cc}/u.test(value) || !value.isWellFormed())
    throw invalid(field, `must be at most ${consumerIdBytesMax} bytes without control characters`);
}

type WantedReads = Required<Pick<GroupInput, "pattern" | "filterExpr">>;

/** A subscription with another pattern or filter would get what another consumer asked for. */
function requireSameReads({ name, pattern, filter_expr }: GroupRow, wanted: WantedReads): void {
  if (pattern === wanted.pattern && (filter_expr ?? "") === wanted.filterExpr) return;
  const reads = filter_expr === null ? pattern : `${pattern} with the filter ${filter_expr}`;
  throw new Fault("failed_precondition", `consumer group ${name} reads ${reads}`, {
    field: "consumerGroup",
    code: "INVALID_ARGUMENT",
  });
}

const writeCursor = ({ namespace, name }: GroupKey): string =>
  Buffer.from(JSON.stringify([namespace, name])).toString("base64url");

function readCursor(cursor: string): { namespace: string; name: string } {
  try {
    const [namespace, name] = JSON.parse(Buffer.from(cursor, "base64url").toString()) as unknown[];
    if (typeof namespace === "string" && typeof name === "string") return { namespace, name };
  } catch {
    // Refused below, like a cursor that is JSON of another form.
  }
  throw invalid("cursor", "is not a cursor of this list");
}

/** Finds the consumer groups that read a topic, for the counts in the topic's record. */
export const openTopicConsumers =
  (store: Pick<Store, "all">): ConsumersOf =>
  async (environmentId) => {
    const groups = (await groupsOnTopics(store, environmentId)).map(
      ({ pattern, position, member_count }) => ({
        tokens: parsePattern(pattern).tokens,
        reader: { position, memberCount: member_count },
      }),
    );
    return (topic) => {
      const tokens = tokensOf(`topic:${topic}`);
      return groups.flatMap((group) => (matchesTokens(group.tokens, tokens) ? group.reader : []));
    };
  };

/** A group whose position is beyond the end of its log would skip the entries that are logged next. */
export const groupCheck = (store: Pick<Store, "all">): IntegrityCheck => ({
  name: "groups.position",
  about:
    "Consumer groups whose position is beyond the end of their log, or that hold deliveries beyond their position.",
  run: async (environmentId) =>
    violationsOf(
      await store.all<{
        id: string;
        at: Instant;
      }>(sql`SELECT namespace || '/' || name AS id, updated_at AS at, position, last, held
        FROM (SELECT g.namespace, g.name, g.updated_at, g.position,
            (CASE WHEN g.log = 'events'
              THEN (SELECT h.position FROM heads h WHERE h.environment_id = ${environmentId})
              ELSE (SELECT t.position FROM topic_heads t WHERE t.environment_id = ${environmentId}) END) AS last,
            (SELECT max(d.position) FROM group_deliveries d WHERE d.environment_id = ${environmentId}
              AND d.group_id = g.id) AS held
          FROM consumer_groups g WHERE g.environment_id = ${environmentId}
          ORDER BY g.namespace, g.name LIMIT ${integrityRowsMax}) looked
        WHERE position > COALESCE(last, 0) OR held > position`),
    ),
});
