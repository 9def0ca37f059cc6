import type { Clock } from "../../../kit/clock.ts";
import { Fault, type FaultKind, missing } from "../../../kit/fault.ts";
import { frameSliceMax, replayMax } from "../../../kit/limits.ts";
import type { Log } from "../../../kit/log.ts";
import type { Store } from "../../../store/store.ts";
import { catchUp, deliveriesFound, newestOf, runFramesAfter } from "./catch-up.ts";
import type { Delivery } from "./delivery.ts";
import { openEffort } from "./effort.ts";
import type { Frames } from "./frames.ts";
import {
  type Broadcast,
  type Channel,
  type ChannelSpec,
  type Hub,
  type Late,
  type Member,
  openHub,
} from "./hub.ts";
import { readSubscriptionOptions, type SubscribeInput, type SubscriptionOptions } from "./options.ts";
import { endsOf } from "./rows.ts";
import { type LogName, literalRun, logOf, subscriptionIdOf } from "./rules.ts";
import type { Sources } from "./source.ts";
import { positionAfter, requireEpoch } from "./start-position.ts";

export type { Delivery } from "./delivery.ts";
export type { Broadcast as Outlet, Channel, ChannelSpec, Member, Start } from "./hub.ts";
export type { SubscriptionOptions as Wanted } from "./options.ts";

export interface Subscription {
  readonly id: string;
  /** Its member is apart now: nothing of the channel reaches it but by `give`. */
  setApart(): void;
  stop(): void;
}

export interface SubscribeRequest {
  environmentId: string;
  wanted: SubscriptionOptions;
  /** How many alike the connection has. */
  ordinal: number;
}

export interface PubSub {
  /** Throws the refusal that names pattern or option. */
  read(input: SubscribeInput): SubscriptionOptions;
  specOf(request: SubscribeRequest): ChannelSpec;
  /** Rejects when the start is above the log's end or has expired; else the member is accepted and then given what it asked for. */
  subscribe(
    spec: ChannelSpec,
    wanted: SubscriptionOptions,
    broadcast: Broadcast,
    member: Member,
  ): Promise<Subscription>;
  /** The tick of loop `pubsub.runs`: ends of runs that are awaited here and that no frame told of. */
  lookOnce(): Promise<void>;
  /** Logs with subscribers on this node. */
  size(): number;
}

/** A subscription that shares what comes with the other members of a group. */
export interface GroupRequest {
  environmentId: string;
  wanted: SubscriptionOptions & { group: string };
  /** Who acknowledges, to the group. */
  consumerId: string;
  /** Where a group that is made now begins; undefined: with what comes next. */
  startAfter: () => Promise<number | undefined>;
  /** As `Member.give` has it. */
  deliver: (delivery: Delivery, isStillHeld: () => boolean) => void | Promise<void>;
  permit: (pattern: string) => Promise<void>;
  ended: (fault: Fault) => void;
}

export type JoinGroup = (request: GroupRequest) => Promise<{ stop(): void }>;

export interface PubSubDeps {
  store: Store;
  clock: Clock;
  log: Log;
  sources: Sources;
  frames: Frames;
  joinGroup: JoinGroup;
}

/** The hub of a log that has subscribers here, open or about to be. */
interface SharedHub {
  count: number;
  hub: Promise<Hub & { close(): void }>;
}

/** A subscription on its way to its channel. */
interface SubscriptionContext {
  spec: ChannelSpec;
  wanted: SubscriptionOptions;
  broadcast: Broadcast;
  member: Member;
  hub: Hub;
  state: { over: boolean };
  channel: { value: Channel | undefined };
}

const isLogged = ({ pattern: { namespace } }: ChannelSpec): boolean => namespace !== "system";

const logIn = ({ pattern }: ChannelSpec): LogName => logOf(pattern.namespace);

/** A subscription to one run. */
interface FollowedRun {
  runId: string;
  /** Gives what the run's history has that was not given. */
  look: () => Promise<void>;
}

/** What comes next has expired, or its filter looks at too much: another try would not help. */
const endsReading: ReadonlySet<FaultKind> = new Set(["failed_precondition", "resource_exhausted"]);

/** Pauses before a failed read of the store is tried again. */
const retryMsMin = 100;
const retryMsMax = 5_000;

export function openPubSub({ store, clock, log, sources, frames, joinGroup }: PubSubDeps): PubSub {
  const hubs = new Map<string, SharedHub>();
  /** Subscriptions to one run each, that is not over. */
  const watched = new Set<FollowedRun>();

  const hubKey = (spec: ChannelSpec) => `${logIn(spec)}\n${spec.environmentId}`;

  async function open(spec: ChannelSpec, onEnd: () => void): Promise<Hub & { close(): void }> {
    const { environmentId } = spec;
    const name = logIn(spec);
    let position = () => 0;
    const failed = (error: unknown) => log.error("pubsub.defect", { environmentId, error });
    const hub = openHub({ environmentId, frames, clock, fedTo: () => position(), failed });
    const feed = await sources[name].follow(environmentId, {
      onEntries: hub.onEntries,
      onEnd() {
        onEnd();
        hub.end();
      },
    });
    position = feed.position;
    // Frames belong to no log: the hub of the events tells them.
    const unlisten = name === "events" ? frames.listen(environmentId, hub.onFrame) : () => {};
    return {
      ...hub,
      close() {
        unlisten();
        feed.stop();
      },
    };
  }

  /** Every holder gives it back, once. */
  function acquireHub(spec: ChannelSpec): { hub: SharedHub["hub"]; release: () => void } {
    const key = hubKey(spec);
    let held = hubs.get(key);
    if (!held) {
      // By then another hub may have the key.
      const forget = () => {
        if (hubs.get(key) === made) hubs.delete(key);
      };
      const made: SharedHub = { count: 0, hub: open(spec, forget) };
      held = made;
      hubs.set(key, made);
    }
    const mine = held;
    mine.count++;
    return {
      hub: mine.hub,
      release() {
        if (--mine.count > 0) return;
        if (hubs.get(key) === mine) hubs.delete(key);
        mine.hub.then(
          (hub) => hub.close(),
          () => {},
        );
      },
    };
  }

  /** The log as it is, and where a subscription begins in it; `after` undefined: with what comes next. */
  async function startOf(
    spec: ChannelSpec,
    wanted: SubscriptionOptions,
  ): Promise<{ after?: number; epoch?: number }> {
    const { startAfter, epoch, withStart } = wanted;
    if (!isLogged(spec) || (startAfter === undefined && epoch === undefined && !withStart)) return {};
    const head = await sources[logIn(spec)].head(spec.environmentId);
    if (!head) throw missing("environment", spec.environmentId);
    requireEpoch(head, epoch);
    const after = startAfter === undefined ? undefined : positionAfter(spec.pattern, head, startAfter);
    return { epoch: head.epoch, ...(after !== undefined && { after }) };
  }

  function join({ hub, spec, broadcast, member, channel }: SubscriptionContext, after: number): void {
    if (hub.isOver()) {
      member.ended();
      return;
    }
    channel.value = hub.channelOf(spec, broadcast);
    if (after > hub.position()) {
      hub.addLate(channel.value, member, { after, reading: false, again: false, isLone: false });
      return;
    }
    hub.join(channel.value, member);
  }

  /** What it asked for of the past, then up to the channel's place, and on with it. Troubles of the store are waited out. */
  async function followLog(following: SubscriptionContext, start: number | undefined): Promise<void> {
    const { spec, wanted, member, hub, state } = following;
    const source = sources[logIn(spec)];
    let after = start;
    const effort = openEffort({ environmentId: spec.environmentId, clock, filter: spec.filter });
    const give = (delivery: Delivery) => {
      after = delivery.sequence ?? after;
      return member.deliver(spec, delivery);
    };
    for (let pauseMs = retryMsMin; !state.over; pauseMs = Math.min(retryMsMax, pauseMs * 2)) {
      try {
        if (after === undefined) {
          const last = hub.position();
          const found = await newestOf(source, spec, { last, count: wanted.replay, effort });
          for await (const delivery of deliveriesFound(source, spec, found, effort)) {
            if (state.over) return;
            const full = give(delivery);
            if (full) await full;
          }
          after = last;
        }
        const from = { source, spec, give, position: hub.position, isOver: () => state.over, effort };
        const reached = await catchUp(from, after);
        if (!state.over) join(following, reached);
        return;
      } catch (error) {
        if (error instanceof Fault && endsReading.has(error.kind)) {
          if (!state.over) member.ended(error);
          return;
        }
        log.warn("pubsub.read_failed", { subscriptionId: spec.id, error });
        if (!state.over) member.troubled();
        await clock.sleep(pauseMs);
      }
    }
  }

  /** The run's history is its log; frames that arrive while it is read are found there. */
  function followRun(
    { spec, wanted, broadcast, member, hub, state, channel }: SubscriptionContext,
    runId: string,
  ): FollowedRun {
    const after = Number(wanted.startAfter ?? 0n);
    const late: Late = { after, reading: false, again: false, isLone: true };
    channel.value = hub.channelOf(spec, broadcast);
    hub.addLate(channel.value, member, late);
    let count = wanted.replay > 0 ? wanted.replay : replayMax;
    const effort = openEffort({ environmentId: spec.environmentId, clock, filter: spec.filter });
    async function read(): Promise<void> {
      late.again = false;
      const found = await runFramesAfter(store, spec, runId, { after: late.after, count, effort });
      count = replayMax;
      for (const delivery of found.deliveries) {
        if (state.over) return;
        const full = member.deliver(spec, delivery);
        if (full) await full;
      }
      late.after = found.last;
      if (found.isOver) watched.delete(watching);
      if (late.again && !state.over) await read();
    }
    const watching: FollowedRun = {
      runId,
      async look() {
        if (late.reading || state.over) return;
        late.reading = true;
        try {
          await read();
        } catch (error) {
          if (error instanceof Fault && endsReading.has(error.kind)) {
            if (!state.over) member.ended(error);
          } else log.warn("pubsub.read_failed", { subscriptionId: spec.id, error });
        } finally {
          late.reading = false;
        }
      },
    };
    watched.add(watching);
    void watching.look();
    return watching;
  }

  async function shareInGroup(
    spec: ChannelSpec,
    wanted: SubscriptionOptions & { group: string },
    member: Member,
  ): Promise<Subscription> {
    const source = sources[logIn(spec)];
    const { environmentId } = spec;
    let accept = () => {};
    const accepted = new Promise<void>((resolve) => {
      accept = resolve;
    });
    const membership = await joinGroup({
      environmentId,
      wanted,
      consumerId: spec.id,
      async startAfter() {
        const head = await source.head(environmentId);
        if (!head || wanted.replay === 0) return undefined;
        const effort = openEffort({ environmentId, clock, filter: spec.filter });
        const range = { last: head.position, count: wanted.replay, effort };
        const [first] = await newestOf(source, spec, range);
        return first === undefined ? head.position : first.position - 1;
      },
      // Nothing comes before the confirmation.
      deliver: (delivery, isStillHeld) => accepted.then(() => member.deliver(spec, delivery, isStillHeld)),
      permit: member.permit,
      ended: member.ended,
    });
    // A group has a place of its own: its members begin nowhere.
    member.accepted(undefined);
    accept();
    return { id: spec.id, setApart() {}, stop: membership.stop };
  }

  return {
    read: readSubscriptionOptions,

    specOf({ environmentId, wanted, ordinal }) {
      const { pattern, filterText: filter, includeMetadata, topicOnly, group } = wanted;
      return {
        id: subscriptionIdOf({ environmentId, pattern, filter, includeMetadata, topicOnly, group, ordinal }),
        environmentId,
        pattern,
        filter: wanted.filter,
        includeMetadata,
        topicOnly,
      };
    },

    async subscribe(spec, wanted, broadcast, member) {
      const { group } = wanted;
      if (group !== undefined) return shareInGroup(spec, { ...wanted, group }, member);
      const { after: start, epoch } = await startOf(spec, wanted);
      const { hub: opening, release } = acquireHub(spec);
      const hub = await opening.catch((error) => {
        release();
        throw error;
      });
      const runId = literalRun(spec.pattern);
      const state = { over: false };
      const channel = { value: undefined as Channel | undefined };
      const following: SubscriptionContext = { spec, wanted, broadcast, member, hub, state, channel };
      const sequence = start ?? hub.position();
      member.accepted(wanted.withStart && epoch !== undefined ? { sequence, epoch } : undefined);
      let watching: FollowedRun | undefined;
      if (runId !== undefined && (wanted.replay > 0 || wanted.startAfter !== undefined))
        watching = followRun(following, runId);
      else if (start !== undefined || (wanted.replay > 0 && isLogged(spec))) void followLog(following, start);
      else join(following, hub.position());
      return {
        id: spec.id,
        setApart() {
          if (channel.value) hub.setApart(channel.value, member);
        },
        stop() {
          if (state.over) return;
          state.over = true;
          if (watching) watched.delete(watching);
          if (channel.value) hub.leave(channel.value, member);
          release();
        },
      };
    },

    async lookOnce() {
      const byRun = Map.groupBy(watched, ({ runId }) => runId);
      const runIds = [...byRun.keys()];
      for (let from = 0; from < runIds.length; from += frameSliceMax)
        for (const { run_id } of await endsOf(store, runIds.slice(from, from + frameSliceMax)))
          for (const one of byRun.get(run_id) ?? []) await one.look();
    },

    size: () => hubs.size,
  };
}
