import type { Bus, Unlisten } from "../../../bus/bus.ts";
import type { Clock, Instant } from "../../../kit/clock.ts";
import {
  frameBytesMax,
  frameEnvironmentBytesMax,
  frameInterestMs,
  frameSliceMax,
} from "../../../kit/limits.ts";
import type { Log } from "../../../kit/log.ts";

/** A `system.*` frame on its way. */
export interface Frame {
  topic: string;
  /** JSON text. */
  data: string;
  at: Instant;
  sequence?: number;
}

/** Frames that are only made while somebody, anywhere, reads them: of runs, of their steps, of workers. */
export type FrameKind = "runs" | "steps" | "workers";

/**
 * Tells subscribers on every node what has happened to the product's own things. Hints, not a ledger: nothing is repeated,
 * nobody waits, and callers tell after their commit.
 */
export interface Frames {
  /** Never throws. An environment id that is no single literal token, and a stream of the platform's own, get no frame. */
  publish(environmentId: string, topic: string, payload: Record<string, unknown>): void;
  /** The same with a payload that is JSON text, and a place to go on from. */
  send(environmentId: string, frame: Frame): void;
  /** Whether anybody, here or on another node, reads run frames of this environment, or of any. */
  wantsRuns(environmentId?: string): boolean;
  /** The same of any kind. */
  wants(kind: FrameKind, environmentId?: string): boolean;
  /** For the readers of one environment on this node. */
  listen(environmentId: string, listener: (frame: Frame) => void): Unlisten;
  /** Readers of these frames came or went on this node. */
  want(kind: FrameKind, environmentId: string, wanted: boolean): void;
  /** The tick of loop `pubsub.interest`: tells the other nodes whose frames are read here; forgets silent ones. */
  publishInterestOnce(): Promise<void>;
}

export interface FramesDeps {
  bus: Bus;
  clock: Clock;
  log: Log;
  /** Tells this process's own hints from those of others. */
  self: string;
}

const subjectOf = (environmentId: string) => `frames.${environmentId}`;

/** Where a hint about interest names the environments of a kind; `wanted` is what nodes of before 0.37 say of runs. */
const fieldOf: Record<FrameKind, string> = { runs: "wanted", steps: "steps", workers: "workers" };
const kinds = Object.keys(fieldOf) as FrameKind[];

/** Environments whose frames of one kind are read. */
interface Interest {
  /** Here, by how many channels. */
  mine: Map<string, number>;
  /** On other nodes, until when that is believed. */
  theirs: Map<string, Instant>;
}

/**
 * Whether the id is one literal token of a subject; of any other no frame is published (proto/README.md
 * 'Topics and payloads').
 */
export const isFrameToken = (environmentId: string): boolean =>
  environmentId !== "" &&
  !/[.*>\s\p{Cc}]/u.test(environmentId) &&
  Buffer.byteLength(environmentId) <= frameEnvironmentBytesMax;

export function openFrames({ bus, clock, log, self }: FramesDeps): Frames {
  const listeners = new Map<string, Set<(frame: Frame) => void>>();
  const interest = Object.fromEntries(
    kinds.map((kind): [FrameKind, Interest] => [kind, { mine: new Map(), theirs: new Map() }]),
  ) as Record<FrameKind, Interest>;
  const isAlone = bus.kind !== "nats";

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
    for (let from = 0; from < environmentIds.length; from += frameSliceMax)
      bus.hint(
        "pubsub.wanted",
        // Nodes of before 0.37 expect `wanted` in every such hint.
        JSON.stringify({
          from: self,
          wanted: [],
          [fieldOf[kind]]: environmentIds.slice(from, from + frameSliceMax),
        }),
      );
  };

  if (!isAlone)
    bus.onHint("pubsub.wanted", (payload) => {
      const hint = JSON.parse(new TextDecoder().decode(payload)) as Record<string, string[] | undefined> & {
        from: string;
      };
      if (hint.from === self) return;
      const until = clock.now() + frameInterestMs;
      for (const kind of kinds)
        for (const environmentId of hint[fieldOf[kind]] ?? [])
          interest[kind].theirs.set(environmentId, until);
    });

  const frames: Frames = {
    publish(environmentId, topic, payload) {
      frames.send(environmentId, { topic, data: JSON.stringify(payload), at: clock.now() });
    },

    send(environmentId, frame) {
      if (!isFrameToken(environmentId) || frame.topic.startsWith("system.stream.svc:")) return;
      deliver(environmentId, frame);
      if (isAlone) return;
      const text = JSON.stringify({ from: self, ...frame });
      if (Buffer.byteLength(text) > frameBytesMax)
        log.debug("frames.too_large", { environmentId, topic: frame.topic });
      else bus.hint(subjectOf(environmentId), text);
    },

    wantsRuns: (environmentId) => frames.wants("runs", environmentId),

    wants(kind, environmentId) {
      const { mine, theirs } = interest[kind];
      if (environmentId === undefined) return mine.size > 0 || theirs.size > 0;
      return mine.has(environmentId) || theirs.has(environmentId);
    },

    listen(environmentId, listener) {
      const others = listeners.get(environmentId);
      if (others) others.add(listener);
      else listeners.set(environmentId, new Set([listener]));
      const unlisten =
        isAlone || !isFrameToken(environmentId)
          ? undefined
          : bus.onHint(subjectOf(environmentId), (payload) => {
              const { from, ...frame } = JSON.parse(new TextDecoder().decode(payload)) as Frame & {
                from: string;
              };
              if (from !== self) listener(frame);
            });
      return () => {
        unlisten?.();
        const all = listeners.get(environmentId);
        all?.delete(listener);
        if (all?.size === 0) listeners.delete(environmentId);
      };
    },

    want(kind, environmentId, wanted) {
      const { mine } = interest[kind];
      const count = (mine.get(environmentId) ?? 0) + (wanted ? 1 : -1);
      if (count > 0) mine.set(environmentId, count);
      else mine.delete(environmentId);
      if (wanted && count === 1 && !isAlone) publishInterest(kind, [environmentId]);
    },

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
