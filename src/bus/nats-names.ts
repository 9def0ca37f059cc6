import { JetStreamApiError, jetstream } from "@nats-io/jetstream";
import { type KV, Kvm } from "@nats-io/kv";
import type { NatsConnection } from "@nats-io/transport-node";
import type { Log } from "../kit/log.ts";
import type { Hold } from "./bus.ts";

export interface NatsNamesOptions {
  /** Undefined while the server cannot be reached. */
  connection: () => NatsConnection | undefined;
  nodeId: string;
  /** `svc_names`: letters, digits, `_` and `-`. */
  bucket: string;
  keptMs: number;
  log: Log;
}

/** After this time the name counts as unreachable, and the caller asks the store who leads. */
const answerMs = 1_000;
/** JetStream's error code for a write with an outdated revision: another node wrote the name before. */
const wrongRevision = 10_071;

const isWrongRevision = (error: unknown) =>
  error instanceof JetStreamApiError && error.code === wrongRevision;

/** Names in a KV bucket whose entries expire. A node that finds no bucket makes one. */
export function natsNames({ connection, nodeId, bucket, keptMs, log }: NatsNamesOptions) {
  let opened: { from: NatsConnection; entries: Promise<KV> } | undefined;
  const revisions = new Map<string, number>();

  async function open(current: NatsConnection): Promise<KV> {
    const buckets = new Kvm(jetstream(current, { timeout: answerMs }));
    const wanted = { ttl: keptMs, history: 1, timeout: answerMs };
    try {
      return await buckets.create(bucket, { ...wanted, replicas: 3 });
    } catch (error) {
      // A single server refuses three replicas, so the bucket gets one. If that fails, `hold` tries again.
      log.debug("bus.names_alone", { error });
      return buckets.create(bucket, { ...wanted, replicas: 1 });
    }
  }

  const entriesOf = (current: NatsConnection): Promise<KV> => {
    if (opened?.from !== current) opened = { from: current, entries: open(current) };
    return opened.entries;
  };

  async function write(entries: KV, name: string): Promise<Hold> {
    const revision = revisions.get(name);
    try {
      revisions.set(
        name,
        revision === undefined
          ? await entries.create(name, nodeId)
          : await entries.update(name, nodeId, revision),
      );
      return "mine";
    } catch (error) {
      revisions.delete(name);
      if (!isWrongRevision(error)) throw error;
    }
    const entry = await entries.get(name);
    if (entry?.string() !== nodeId || entry.operation !== "PUT") return "theirs";
    // This node held the name before it lost its connection.
    revisions.set(name, await entries.update(name, nodeId, entry.revision));
    return "mine";
  }

  return {
    async hold(name: string): Promise<Hold> {
      const current = connection();
      if (!current) return "unreachable";
      try {
        return await write(await entriesOf(current), name);
      } catch (error) {
        // A server that lost its data has no bucket any more: the next `hold` makes the bucket again.
        opened = undefined;
        revisions.clear();
        log.debug("bus.names_unreachable", { error });
        return "unreachable";
      }
    },

    async release(name: string): Promise<void> {
      const revision = revisions.get(name);
      const current = connection();
      if (revision === undefined || !current) return;
      revisions.delete(name);
      try {
        await (await entriesOf(current)).delete(name, { previousSeq: revision });
      } catch (error) {
        log.debug("bus.name_not_let_go", { error });
      }
    },
  };
}
