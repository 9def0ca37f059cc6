import type { LogName } from "../../../kit/sequence.ts";
import type { Basics } from "../../../store/store.ts";
import { isOfChanges } from "./changed-lists.ts";
import type { ChannelSpec } from "./channel.ts";
import type { Sources } from "./delivery.ts";
import type { FrameKind, Frames } from "./frames.ts";
import { Hub } from "./hub.ts";
import { logOf } from "./rules.ts";

export interface SharedHubsDeps extends Basics<"clock" | "log"> {
  sources: Sources;
  frames: Frames;
  /** Places of frames of changed lists that concern an environment, or the platform where it is empty. */
  changePlaces: (environmentId: string) => Promise<string[]>;
}

interface OpenHub {
  hub: Hub;
  close: () => void;
}

/** The hub of a log that has subscribers here, open or about to be. */
interface SharedHub {
  count: number;
  opening: Promise<OpenHub>;
}

/** The log that the channel is served from. */
export const logNameOf = ({ pattern }: ChannelSpec): LogName => logOf(pattern.namespace);

/** The hubs of this node: one for each log with subscribers, closed with the last of them. */
export class SharedHubs {
  readonly #deps: SharedHubsDeps;
  readonly #hubs = new Map<string, SharedHub>();

  constructor(deps: SharedHubsDeps) {
    this.#deps = deps;
  }

  get size(): number {
    return this.#hubs.size;
  }

  /** The tick of loop `pubsub.positions`. */
  async tellPositions(): Promise<void> {
    for (const { opening } of this.#hubs.values()) {
      const open = await opening.catch(() => undefined);
      open?.hub.tellPositions();
    }
  }

  /** The hub of the channel's log. The caller releases it once. */
  acquire(spec: ChannelSpec): { hub: Promise<Hub>; release: () => void } {
    const hasNoLog = isOfChanges(spec.pattern);
    const key = `${hasNoLog ? "changes" : logNameOf(spec)}\n${spec.environmentId}`;
    let shared = this.#hubs.get(key);
    if (!shared) {
      const opening = hasNoLog ? this.#openWithoutLog(spec) : this.#open(spec, () => this.#forget(key, made));
      const made: SharedHub = { count: 0, opening };
      shared = made;
      this.#hubs.set(key, made);
    }
    const acquired = shared;
    acquired.count++;
    return {
      hub: acquired.opening.then(({ hub }) => hub),
      release: () => {
        if (--acquired.count > 0) return;
        this.#forget(key, acquired);
        acquired.opening.then(
          ({ close }) => close(),
          () => {},
        );
      },
    };
  }

  /** Another hub may have the key by now: that one stays. */
  #forget(key: string, shared: SharedHub): void {
    if (this.#hubs.get(key) === shared) this.#hubs.delete(key);
  }

  async #open(spec: ChannelSpec, onEnd: () => void): Promise<OpenHub> {
    const { clock, log, sources, frames } = this.#deps;
    const { environmentId } = spec;
    const name = logNameOf(spec);
    let fedTo = () => 0;
    const failed = (error: unknown) => log.error("pubsub.defect", { environmentId, error });
    const { want } = frames;
    const announce = (kinds: readonly FrameKind[]) => frames.announce(kinds, [environmentId]);
    const hub = new Hub({
      ...{ environmentId, frames: { want, announce }, clock, failed },
      fedTo: () => fedTo(),
    });
    const feed = await sources[name].follow(environmentId, {
      onEntries: (entries) => hub.onEntries(entries),
      onEnd() {
        onEnd();
        hub.end();
      },
    });
    fedTo = feed.position;
    // Frames belong to no log: the hub of the events log delivers them.
    const unlisten =
      name === "events" ? frames.listen(environmentId, (frame) => hub.onFrame(frame)) : () => {};
    // A subscriber gets all that is published anywhere after its subscription was confirmed.
    if (name === "events") await frames.listening();
    return {
      hub,
      close() {
        unlisten();
        feed.stop();
      },
    };
  }

  /** Frames of changed lists alone: the platform has no log, and no other frame is for its readers. */
  async #openWithoutLog({ environmentId }: ChannelSpec): Promise<OpenHub> {
    const { clock, log, frames, changePlaces } = this.#deps;
    const places = await changePlaces(environmentId);
    const want: Frames["want"] = (kind, _, isWanted) => {
      for (const place of places) frames.want(kind, place, isWanted);
    };
    const failed = (error: unknown) => log.error("pubsub.defect", { environmentId, error });
    const announce = (kinds: readonly FrameKind[]) => frames.announce(kinds, places);
    const hub = new Hub({ environmentId, frames: { want, announce }, clock, fedTo: () => 0, failed });
    const unlistens = places.map((place) => frames.listen(place, (frame) => hub.onFrame(frame)));
    await frames.listening();
    return {
      hub,
      close() {
        for (const unlisten of unlistens) unlisten();
      },
    };
  }
}
