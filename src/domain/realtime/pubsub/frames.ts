import { type Static, Type } from "@sinclair/typebox";
import type { Bus, Unlisten } from "../../../bus/bus.ts";
import type { Clock, Instant } from "../../../kit/clock.ts";
import type { Basics } from "../../../store/store.ts";
import type { FrameTopic } from "./frame-things.ts";
import {
  endsWaitingMax,
  frameBytesMax,
  frameEnvironmentBytesMax,
  frameInterestMs,
  frameListenMsMax,
  frameSliceMax,
  lookEveryMs,
} from "./limits.ts";

/** A `system.*` frame: something that happened to a run, a step, a worker, a function and so on. */
export interface Frame {
  topic: string;
  /** JSON text. */
  data: string;
  at: Instant;
  sequence?: number;
}

/** Kinds of frames that are made only while somebody on any node reads them. */
export type FrameKind =
  | "runs"
  | "steps"
  | "workers"
  | "streams"
  | "projections"
  | "groups"
  | "webhooks"
  | "changes";

/**
 * Publishes frames to subscribers on every node. Frames are hints, not a log: none is repeated, nobody waits
 * for one, and callers publish after their commit.
 */
export type Frames = ReturnType<typeof openFrames>;

export interface FramesDeps extends Basics<"clock" | "log"> {
  bus: Bus;
  /** Id of this process: it ignores its own hints. */
  self: string;
}

const SentFrame = Type.Object({
  /** Id of the process that sent it. */
  from: Type.String(),
  topic: Type.String(),
  data: Type.String(),
  at: Type.Number(),
  sequence: Type.Optional(Type.Number()),
});

const Environments = Type.Optional(Type.Array(Type.String()));
const InterestHint = Type.Object({
  from: Type.String(),
  wanted: Environments,
  steps: Environments,
  workers: Environments,
  streams: Environments,
  projections: Environments,
  groups: Environments,
  webhooks: Environments,
  changes: Environments,
});

/**
 * The field of an interest hint with the environments of a kind; `wanted` is what nodes before 0.37 use for
 * runs.
 */
const fieldOf: Record<FrameKind, Exclude<keyof Static<typeof InterestHint>, "from">> = {
  runs: "wanted",
  steps: "steps",
  workers: "workers",
  streams: "streams",
  projections: "projections",
  groups: "groups",
  webhooks: "webhooks",
  changes: "changes",
};
const kinds = Object.keys(fieldOf) as FrameKind[];

/** Environments whose frames of one kind have readers. */
interface Interest {
  /** On this node: the number of channels. */
  mine: Map<string, number>;
  /** On other nodes: until when their last hint counts. */
  theirs: Map<string, Instant>;
}

/** Whether the id is one literal token of a bus subject: frames of any other environment are dropped. */
export const isFrameToken = (environmentId: string): boolean =>
  environmentId !== "" &&
  !/[.*>\s\p{Cc}]/u.test(environmentId) &&
  Buffer.byteLength(environmentId) <= frameEnvironmentBytesMax;

/** Hints of interest in these environments. Nodes before 0.37 expect `wanted` in every one. */
function* hintsOf(kind: FrameKind, environmentIds: readonly string[]) {
  for (let from = 0; from < environmentIds.length; from += frameSliceMax)
    yield { wanted: [], [fieldOf[kind]]: environmentIds.slice(from, from + frameSliceMax) };
}

export function openFrames({ bus, clock, log, self }: FramesDeps) {
  const listeners = new Map<string, Set<(frame: Frame) => void>>();
  const interest = Object.fromEntries(
    kinds.map((kind): [FrameKind, Interest] => [kind, { mine: new Map(), theirs: new Map() }]),
  ) as Record<FrameKind, Interest>;
  const isAlone = bus.kind !== "nats";
  const sentFrames = bus.channels("frames", SentFrame, frameBytesMax);
  const interestHints = bus.channel("pubsub.wanted", InterestHint);

  const deliver = (environmentId: string, frame: Frame) => {
    for (const listener of [...(listeners.get(environmentId) ?? [])]) {
      try {
        listener(frame);
      } catch (error) {
        log.error("frames.listener_failed", { environmentId, error });
      }
    }
  };

  const publishInterest = (kind: FrameKind, environmentIds: readonly string[]) => {
    for (const hint of hintsOf(kind, environmentIds)) interestHints.publish({ from: self, ...hint });
  };

  if (!isAlone)
    interestHints.listen((hint) => {
      if (hint.from === self) return;
      const until = clock.now() + frameInterestMs;
      for (const kind of kinds)
        for (const environmentId of hint[fieldOf[kind]] ?? [])
          interest[kind].theirs.set(environmentId, until);
    });

  const frames = {
    /** Never throws. Drops frames of an id that is no frame token, and of the platform's own streams. */
    publish(environmentId: string, topic: FrameTopic, payload: Record<string, unknown>) {
      frames.send(environmentId, { topic, data: JSON.stringify(payload), at: clock.now() });
    },

    /** The same with a payload that is JSON text, and the place that a subscription can resume behind. */
    send(environmentId: string, frame: Frame & { topic: FrameTopic }) {
      if (!isFrameToken(environmentId) || frame.topic.startsWith("system.stream.svc:")) return;
      deliver(environmentId, frame);
      if (isAlone) return;
      if (!sentFrames.publish(environmentId, { from: self, ...frame }))
        log.debug("frames.too_large", { environmentId, topic: frame.topic });
    },

    /** Whether run frames of this environment, or of any, have readers on some node. */
    wantsRuns: (environmentId?: string) => frames.wants("runs", environmentId),

    /** The same of any kind. */
    wants(kind: FrameKind, environmentId?: string): boolean {
      const { mine, theirs } = interest[kind];
      if (environmentId === undefined) return mine.size > 0 || theirs.size > 0;
      return mine.has(environmentId) || theirs.has(environmentId);
    },

    /** Frames of one environment, for its readers on this node. */
    listen(environmentId: string, listener: (frame: Frame) => void): Unlisten {
      const others = listeners.get(environmentId);
      if (others) others.add(listener);
      else listeners.set(environmentId, new Set([listener]));
      const unlisten =
        isAlone || !isFrameToken(environmentId)
          ? undefined
          : sentFrames.listen(environmentId, ({ from, ...frame }) => {
              if (from !== self) listener(frame);
            });
      return () => {
        unlisten?.();
        const all = listeners.get(environmentId);
        all?.delete(listener);
        if (all?.size === 0) listeners.delete(environmentId);
      };
    },

    /**
     * Resolves when the listeners of this node hear what any node publishes from now on; a bus that does not
     * say so is waited for `frameListenMsMax`.
     */
    listening: () => bus.listening(frameListenMsMax),

    /**
     * Resolves when the bus has passed on to all nodes that these kinds will have a reader here: who is told
     * afterwards that its subscription stands gets what any node makes from then on.
     */
    async announce(kinds: readonly FrameKind[], environmentIds: readonly string[]): Promise<void> {
      const fresh = isAlone
        ? []
        : kinds.map((kind) => [kind, environmentIds.filter((id) => !interest[kind].mine.has(id))] as const);
      if (fresh.every(([, ids]) => ids.length === 0)) return;
      for (const [kind, ids] of fresh) publishInterest(kind, ids);
      await bus.listening(frameListenMsMax);
    },

    /** Counts a reader on this node that came, or went. */
    want(kind: FrameKind, environmentId: string, wanted: boolean) {
      const { mine } = interest[kind];
      const count = (mine.get(environmentId) ?? 0) + (wanted ? 1 : -1);
      if (count > 0) mine.set(environmentId, count);
      else mine.delete(environmentId);
      if (wanted && count === 1 && !isAlone) publishInterest(kind, [environmentId]);
    },

    /**
     * The tick of loop `pubsub.interest`: tells other nodes whose frames are read here, and forgets silent
     * nodes.
     */
    async publishInterestOnce() {
      const now = clock.now();
      for (const kind of kinds) {
        const { mine, theirs } = interest[kind];
        for (const [environmentId, until] of theirs) if (until < now) theirs.delete(environmentId);
        if (!isAlone && mine.size > 0) publishInterest(kind, [...mine.keys()]);
      }
    },
  };
  return frames;
}

export interface LookupQueueOptions<Item> {
  clock: Pick<Clock, "elapsed" | "sleep">;
  /** Items of one look. */
  sliceMax: number;
  look: (items: readonly Item[]) => Promise<void>;
  /** The items of the failed look are dropped, because frames are hints. */
  onFailed: (error: unknown) => void;
}

/**
 * Looks up the rows that frames are made of. One look runs at a time; the next takes what came meanwhile,
 * once a key. A look begins at once when there was none within `lookEveryMs`; otherwise a busy node would ask
 * the store for nearly each run by itself.
 */
export function openLookupQueue<Item>({ clock, sliceMax, look, onFailed }: LookupQueueOptions<Item>) {
  const waiting = new Map<string, Item>();
  let looking = false;
  let beganAt = Number.NEGATIVE_INFINITY;

  async function lookAll(): Promise<void> {
    looking = true;
    while (waiting.size > 0) {
      const restMs = beganAt + lookEveryMs - clock.elapsed();
      if (restMs > 0 && waiting.size < sliceMax) await clock.sleep(restMs);
      beganAt = clock.elapsed();
      const slice = [...waiting.entries().take(sliceMax)];
      for (const [key] of slice) waiting.delete(key);
      await look(slice.map(([, item]) => item)).catch(onFailed);
    }
    looking = false;
  }

  return (items: Iterable<readonly [key: string, item: Item]>): void => {
    for (const [key, item] of items) if (waiting.size < endsWaitingMax) waiting.set(key, item);
    if (!looking && waiting.size > 0) void lookAll();
  };
}
