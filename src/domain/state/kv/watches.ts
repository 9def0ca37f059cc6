import type { BusChannel } from "../../../bus/bus.ts";
import { Fault, missing } from "../../../kit/fault.ts";
import { semaphore } from "../../../kit/in-turn.ts";
import type { Basics, Store } from "../../../store/store.ts";
import { BucketFeed } from "./bucket-feed.ts";
import { watchedSlice, watchReadsAtOnce, watchSlice } from "./limits.ts";
import type { Bucket } from "./rows.ts";
import type { KeyFilter } from "./rules.ts";
import {
  bucketEnd,
  type ChangeHead,
  changesAfter,
  movedAmong,
  type ToldChange,
  valuesAfter,
  withValues,
} from "./watch-rows.ts";

export type { ToldChange } from "./watch-rows.ts";

/** What nodes tell each other: this bucket changed, or is gone. */
export interface BucketMoved {
  environmentId: string;
  bucketId: string;
}

export interface WatchAsk {
  filter: KeyFilter;
  /** The last revision that the watcher knows; undefined tells what there is first. */
  after: number | undefined;
  /** Deletions before `after` do not matter. */
  forgets?: boolean;
  signal: AbortSignal;
  /** Called once the watch is accepted. */
  admitted: () => void;
}

export type Watches = ReturnType<typeof openWatches>;

export interface WatchesDeps extends Basics<"store" | "clock" | "log"> {
  moved: BusChannel<BucketMoved>;
}

const nameOf = (environmentId: string, bucketId: string) => `${environmentId}\n${bucketId}`;

/** A store that reads so little at once for one environment's watches that others find free connections. */
function sparingly(store: Store): Store {
  const inTurn = semaphore(watchReadsAtOnce);
  return {
    ...store,
    one: (query) => inTurn(() => store.one(query)),
    all: (query) => inTurn(() => store.all(query)),
  };
}

export function openWatches(deps: WatchesDeps) {
  const { clock, moved } = deps;
  const feeds = new Map<string, BucketFeed>();
  /** By environment, for as long as it has watchers. */
  const watched = new Map<string, { store: Store; watchers: number }>();
  moved.listen(({ environmentId, bucketId }) => feeds.get(nameOf(environmentId, bucketId))?.wake());

  function join(bucket: Bucket, at: number): { feed: BucketFeed; leave: () => void } {
    const { environmentId } = bucket;
    const name = nameOf(environmentId, bucket.id);
    const own = watched.get(environmentId) ?? { store: sparingly(deps.store), watchers: 0 };
    watched.set(environmentId, own);
    own.watchers++;
    const feed = feeds.get(name) ?? new BucketFeed({ ...deps, store: own.store }, bucket, at);
    feeds.set(name, feed);
    feed.watchers++;
    return {
      feed,
      leave() {
        if (--feed.watchers === 0) feeds.delete(name);
        if (--own.watchers === 0) watched.delete(environmentId);
      },
    };
  }

  /** Reads slice after slice until there is none; answers the last revision that was looked at. */
  async function* readOn(
    bucket: Bucket,
    { filter, signal }: WatchAsk,
    { store, from }: { store: Store; from: number },
    slice: (after: number) => Promise<ChangeHead[]>,
  ): AsyncGenerator<ToldChange, number> {
    for (let after = from; ; ) {
      if (signal.aborted) return after;
      const heads = await slice(after);
      const wanted = heads.filter(({ key }) => filter.matches(key));
      for await (const changes of withValues(store, bucket, wanted)) yield* changes;
      after = heads.at(-1)?.revision ?? after;
      if (heads.length < watchSlice) return after;
    }
  }

  async function* changes(bucket: Bucket, ask: WatchAsk, feed: BucketFeed, end: number) {
    const { filter, signal } = ask;
    const { exact: key } = filter;
    const { store } = watched.get(bucket.environmentId)!;
    let cursor = ask.after ?? end;
    if (ask.after === undefined)
      yield* readOn(bucket, ask, { store, from: 0 }, (after) =>
        valuesAfter(store, bucket, { after, key, limit: watchSlice, upTo: end, now: clock.now() }),
      );
    while (!signal.aborted) {
      const seen = feed.at;
      cursor = yield* readOn(bucket, ask, { store, from: cursor }, (after) =>
        changesAfter(store, bucket, { after, key, limit: watchSlice, now: clock.now() }),
      );
      cursor = Math.max(cursor, seen);
      // The feed has read on meanwhile.
      if (feed.at > cursor) continue;
      const tap = feed.tap(cursor, filter.matches);
      const stop = () => tap.stop();
      signal.addEventListener("abort", stop, { once: true });
      try {
        while (!signal.aborted && !tap.isCut)
          for (const change of await tap.take()) {
            yield change;
            cursor = change.revision;
          }
      } finally {
        signal.removeEventListener("abort", stop);
        feed.untap(tap);
      }
    }
  }

  return {
    /** Changes of a bucket in the order of their revisions, until the signal aborts. */
    async *watch(bucket: Bucket, ask: WatchAsk): AsyncGenerator<ToldChange> {
      const end = await bucketEnd(deps.store, bucket);
      const { after } = ask;
      if (!end) throw missing("bucket", bucket.name);
      const { feed, leave } = join(bucket, end.revision);
      try {
        ask.admitted();
        // By a frame: browsers see no status of an upgrade, and must tell this from other refusals.
        if (after !== undefined && !ask.forgets) requireKept(after, end);
        yield* changes(bucket, ask, feed, end.revision);
      } finally {
        leave();
      }
    },

    /** The tick of loop `kv.watches`: asks which watched buckets have changed without a hint. */
    async lookOnce() {
      const tapped = [...feeds.values()].filter(({ isTapped }) => isTapped);
      for (let from = 0; from < tapped.length; from += watchedSlice) {
        const some = tapped.slice(from, from + watchedSlice);
        const behind = new Set(
          await movedAmong(
            deps.store,
            some.map(({ bucket, at }) => ({ ...bucket, at })),
          ),
        );
        for (const feed of some) if (behind.has(feed.bucket.id)) feed.wake();
      }
    },

    /** Watches that are open at this node. */
    size: () => [...feeds.values()].reduce((sum, { watchers }) => sum + watchers, 0),
  };
}

/** Throws where a watch from the revision would miss something: see `onGap` of the SDK. */
function requireKept(after: number, end: { revision: number; forgotten_revision: number }): void {
  const refuse = (why: string) => {
    throw new Fault("failed_precondition", `after: ${why}`, { field: "after" });
  };
  // The bucket was made anew, or restored from a backup: its revisions began again.
  if (after > end.revision) refuse(`the last revision is ${end.revision}`);
  if (after < end.forgotten_revision) refuse("deletions since are kept no more: watch without it");
}
