import type { Bus } from "../../../bus/bus.ts";
import type { Clock } from "../../../kit/clock.ts";
import { Fault, invalid, missing } from "../../../kit/fault.ts";
import type { Ids } from "../../../kit/ids.ts";
import { groupDelayMsMax, groupsMax } from "../../../kit/limits.ts";
import type { Log } from "../../../kit/log.ts";
import { pageSize } from "../../../kit/page.ts";
import { roundRobin, type Slice, workOn } from "../../../kit/round-robin.ts";
import type { Watch } from "../../../kit/watch.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { Sources } from "../pubsub/source.ts";
import { type AckVerdict, type GroupChange, openAcks } from "./ack.ts";
import { type GroupReader, type JoinedMember, openGroupMembership } from "./membership.ts";
import {
  countGroups,
  deleteGroup,
  endOf,
  environmentsWithLapsed,
  type GroupKey,
  type GroupRow,
  type GroupStatus,
  getGroup,
  getListed,
  holdGroup,
  insertGroup,
  type ListedGroup,
  lapsedGroups,
  listGroups,
  updateSettings,
} from "./rows.ts";
import { changed, changesOf, type GroupInput, type GroupName, keyOf, settingsOf } from "./definition.ts";

export type { GroupReader, JoinedMember as Seated } from "./membership.ts";
export type { ListedGroup } from "./rows.ts";
export type { GroupInput, GroupName } from "./definition.ts";

export interface JoinRequest extends GroupName {
  /** As acknowledgements name it; without one it is nobody in particular. */
  consumerId: string;
  clientId: string;
}

export interface AckRequest extends GroupName {
  eventId: string;
  /** Empty: whoever holds it. */
  consumerId: string;
  verdict: AckVerdict;
  /** Of a `nak`; 0 and absent: the group's own. */
  delayMs?: number | undefined;
}

export interface Groups {
  /** It gets what is logged from now on. `already_exists` for a name that is taken. */
  create(environmentId: string, name: GroupName, input: GroupInput): Promise<ListedGroup>;
  get(environmentId: string, name: GroupName): Promise<ListedGroup>;
  list(
    environmentId: string,
    page: {
      namespace: string | undefined;
      status: GroupStatus | undefined;
      limit: number | undefined;
      cursor: string | undefined;
    },
  ): Promise<{ groups: ListedGroup[]; nextCursor: string | undefined; totalCount: number }>;
  /**
   * `paths` names the settings to take over, as the message spells them; without any, those that say something are.
   * Deliveries that are held keep what they were held with.
   */
  update(
    environmentId: string,
    name: GroupName,
    input: GroupInput,
    paths: readonly string[] | undefined,
  ): Promise<ListedGroup>;
  delete(environmentId: string, name: GroupName): Promise<void>;
  /**
   * Takes part until it is stopped, or the reader is told of the end. The reader is asked to permit what the group reads, now
   * and whenever that changes.
   */
  join(environmentId: string, request: JoinRequest, subscriber: GroupReader): Promise<JoinedMember>;
  /**
   * The group that a subscription names: made when there is none, from `startAfter` or from now on, and kept a while after its
   * last member. Throws when there is one with another pattern or filter.
   */
  forSubscription(
    environmentId: string,
    name: string,
    wanted: Required<Pick<GroupInput, "pattern" | "filterExpr">>,
    startAfter: () => Promise<number | undefined>,
  ): Promise<void>;
  /** Of a group whose ack_mode is manual. Resolves when it is durable: an acknowledged delivery never comes again. */
  ack(environmentId: string, request: AckRequest): Promise<void>;
  /** The tick of loop `groups.look`: signs of life, silent members, and what no hint told of. */
  lookOnce(): Promise<{ againInMs?: number }>;
  /** The tick of loop `groups.refresh`: changes that other nodes made, where no hint told of them. */
  refreshOnce(): Promise<void>;
  /** The tick of loop `groups.forget`, on the node that leads `retention`. */
  forgetOnce(write: <T>(work: (session: Session) => Promise<T>) => Promise<T>): Promise<void>;
  /** Resolves once nothing is on its way to the store. */
  settled(): Promise<void>;
}

export interface GroupsDeps {
  store: Store;
  clock: Clock;
  ids: Ids;
  log: Log;
  watch: Watch;
  bus: Bus;
  nodeId: string;
  sources: Sources;
  knowsTime: () => boolean;
}

const subject = "groups.moved";

export function openGroups(deps: GroupsDeps): Groups {
  const { store, clock, ids, log, watch, bus, nodeId } = deps;
  const publishChanges = (moved: readonly GroupChange[]) => {
    if (bus.kind === "nats") bus.hint(subject, JSON.stringify({ from: nodeId, moved }));
  };
  const onChanged = (moved: readonly GroupChange[]) => {
    membership.noteChanges(moved);
    publishChanges(moved);
  };
  const acks = openAcks({ store, clock, watch, onChanged });
  const membership = openGroupMembership({ ...deps, acks, onChanged });
  bus.onHint(subject, (payload) => {
    const { from, moved } = JSON.parse(new TextDecoder().decode(payload)) as {
      from: string;
      moved: GroupChange[];
    };
    if (from !== nodeId) membership.noteChanges(moved);
  });

  async function listedOf(key: GroupKey): Promise<ListedGroup> {
    const group = await getListed(store, key);
    if (!group) throw missing("consumer group", key.name);
    return group;
  }

  async function insert(
    session: Session,
    key: GroupKey,
    input: GroupInput,
    { keptUntil, startAfter }: { keptUntil: number | null; startAfter?: number | undefined },
  ): Promise<number> {
    const settings = settingsOf(input);
    const now = clock.now();
    const end = await endOf(session, key.environment_id, settings.log);
    if (end === undefined) throw missing("environment", key.environment_id);
    const all = { environmentId: key.environment_id, namespace: undefined, status: undefined };
    if ((await countGroups(session, all)) >= groupsMax)
      throw new Fault("resource_exhausted", `at most ${groupsMax} consumer groups`);
    return insertGroup(session, {
      ...key,
      ...settings,
      id: ids.next("group"),
      version: 1,
      position: Math.min(startAfter ?? end, end),
      dropped_count: 0,
      given_up_count: 0,
      kept_until: keptUntil,
      created_at: now,
      updated_at: now,
    });
  }

  return {
    async create(environmentId, name, input) {
      const key = keyOf(environmentId, name);
      if ((await store.write((session) => insert(session, key, input, { keptUntil: null }))) === 0)
        throw new Fault("already_exists", `consumer group ${key.name} exists in namespace ${key.namespace}`, {
          field: "name",
        });
      return listedOf(key);
    },

    get: async (environmentId, name) => listedOf(keyOf(environmentId, name)),

    async list(environmentId, { namespace, status, limit, cursor }) {
      const size = pageSize(limit);
      const filter = { environmentId, namespace: namespace || undefined, status };
      const after = cursor ? readCursor(cursor) : undefined;
      const [found, totalCount] = await Promise.all([
        listGroups(store, filter, { after, limit: size + 1 }),
        countGroups(store, filter),
      ]);
      const groups = found.slice(0, size);
      return {
        groups,
        nextCursor: found.length > size ? writeCursor(groups.at(-1)!) : undefined,
        totalCount,
      };
    },

    async update(environmentId, name, input, paths) {
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
      await membership.lookAt(key);
      return listedOf(key);
    },

    async delete(environmentId, name) {
      const key = keyOf(environmentId, name);
      const group = await store.write(async (session) => {
        const found = await holdGroup(session, key);
        if (found) await deleteGroup(session, found);
        return found;
      });
      if (!group) throw missing("consumer group", key.name);
      publishChanges([{ environmentId, groupId: group.id, dueAt: clock.now() }]);
      await membership.lookAt(key);
    },

    async join(environmentId, { consumerId, clientId, ...name }, subscriber) {
      const key = keyOf(environmentId, name, "group_name");
      for (const [field, value] of [
        ["consumer_id", consumerId],
        ["client_id", clientId],
      ] as const)
        if (Buffer.byteLength(value) > consumerIdBytesMax || /\p{Cc}/u.test(value) || !value.isWellFormed())
          throw invalid(field, `at most ${consumerIdBytesMax} bytes without control characters`);
      const group = await getGroup(store, key);
      if (!group) throw missing("consumer group", key.name);
      await subscriber.permit(group.pattern);
      return membership.join(group, { consumerId, clientId }, subscriber);
    },

    async forSubscription(environmentId, name, wanted, startAfter) {
      const key = keyOf(environmentId, { name }, "consumerGroup");
      let group = await getGroup(store, key);
      if (!group) {
        const position = await startAfter();
        const keptUntil = membership.keptUntil();
        await store.write((session) =>
          insert(session, key, wanted, {
            keptUntil,
            ...(position !== undefined && { startAfter: position }),
          }),
        );
        group = await getGroup(store, key);
        if (!group) throw missing("consumer group", name);
      }
      if (group.pattern !== wanted.pattern || (group.filter_expr ?? "") !== wanted.filterExpr)
        throw new Fault("failed_precondition", `consumer group ${name} reads ${describe(group)}`, {
          field: "consumerGroup",
          code: "INVALID_ARGUMENT",
        });
    },

    async ack(environmentId, { eventId, consumerId, verdict, delayMs = 0, ...name }) {
      const key = keyOf(environmentId, name, "group_name");
      if (eventId === "") throw invalid("event_id", "must not be empty");
      if (delayMs < 0 || delayMs > groupDelayMsMax)
        throw invalid("redeliver_delay_ms", `from 0 to ${groupDelayMsMax}`);
      await acks.ack({ ...key, eventId, consumerId, verdict, delayMs: delayMs > 0 ? delayMs : undefined });
    },

    lookOnce: membership.lookOnce,

    async refreshOnce() {
      // Alone, this node knows of every change by itself.
      if (store.engine === "postgres") await membership.refreshOnce();
    },

    async forgetOnce(write) {
      const now = clock.now();
      const forgetSome = async (slice: Slice) => {
        const found = await lapsedGroups(store, now, slice);
        for (const lapsed of found)
          await write(async (session) => {
            const group = await holdGroup(session, lapsed);
            if (group?.id === lapsed.id && group.kept_until !== null && group.kept_until < clock.now()) {
              await deleteGroup(session, group);
              log.info("groups.lapsed", { environmentId: group.environment_id, group: group.name });
            }
          });
        return found;
      };
      const work = workOn(forgetSome, () => environmentsWithLapsed(store, now));
      await roundRobin([work], { clock, limit: lapsedAtOnce });
    },

    async settled() {
      await membership.settled();
      await acks.drain();
    },
  };
}

const lapsedAtOnce = 100;
const consumerIdBytesMax = 200;

const describe = ({ pattern, filter_expr }: GroupRow): string =>
  filter_expr === null ? pattern : `${pattern} with the filter ${filter_expr}`;

const writeCursor = ({ namespace, name }: GroupKey): string =>
  Buffer.from(JSON.stringify([namespace, name])).toString("base64url");

function readCursor(cursor: string): { namespace: string; name: string } {
  try {
    const [namespace, name] = JSON.parse(Buffer.from(cursor, "base64url").toString()) as unknown[];
    if (typeof namespace === "string" && typeof name === "string") return { namespace, name };
  } catch {
    // The same answer as for every other text that is none.
  }
  throw invalid("cursor", "is not a cursor of this list");
}
