import { createClient } from "../../src/sdk/index.ts";
import { type Nodes, pickOf, stayMs } from "./lone-readers.ts";

/** A change of a key, as the store has it and as a watcher is told of it. */
export interface KeyChange {
  revision: number;
  key: string;
  /** Empty of a deletion. */
  text: string;
}

export interface KeyInterest {
  bucket: string;
  /** A key or a pattern; undefined is all. */
  key: string | undefined;
  wants: (key: string) => boolean;
}

export interface KeyWatcher {
  about: string;
  interest: KeyInterest;
  got: KeyChange[];
  /** Connections that were opened behind a revision. */
  resumes: number;
  stop(): Promise<void>;
}

const textOf = (value: string) => Buffer.from(value, "base64").toString();

/** A bare socket that turns from node to node and knows its last revision. */
export function bareWatcher(nodes: Nodes, interest: KeyInterest): KeyWatcher {
  const { bucket, key } = interest;
  const got: KeyChange[] = [];
  let raw: WebSocket | undefined;
  let isOver = false;
  const watcher: KeyWatcher = {
    about: `bare socket, ${bucket} ${key ?? ""}`,
    interest,
    got,
    resumes: 0,
    async stop() {
      isOver = true;
      raw?.close();
      await Promise.race([going, Bun.sleep(5_000)]);
    },
  };

  /** One connection, until it is closed. */
  const connect = () =>
    new Promise<void>((closed) => {
      const after = got.at(-1)?.revision ?? 0;
      const query = `?after=${after}${key === undefined ? "" : `&key=${encodeURIComponent(key)}`}`;
      const socket = new WebSocket(
        `${pickOf(nodes).replace("http", "ws")}/api/v1/kv/buckets/${bucket}/watch${query}`,
        { headers: { authorization: `Bearer ${nodes.key}` } } as unknown as string[],
      );
      raw = socket;
      // A socket that never opened may close without a word.
      const leaving = setTimeout(() => {
        socket.close();
        setTimeout(closed, 1_000);
      }, stayMs(nodes));
      socket.onopen = () => {
        if (after > 0) watcher.resumes++;
      };
      socket.onmessage = ({ data }) => {
        if (raw !== socket) return;
        const { type, revision, key, value } = JSON.parse(String(data));
        if (type === "kv_update") got.push({ revision, key, text: textOf(value) });
      };
      socket.onclose = () => {
        clearTimeout(leaving);
        closed();
      };
    });
  const going = (async () => {
    for (; !isOver; await Bun.sleep(20 + nodes.chance() * 200)) await connect();
  })();
  return watcher;
}

/** The SDK's watch of one node, which finds its way back to it by itself. */
export function sdkWatcher(nodes: Nodes, interest: KeyInterest): KeyWatcher {
  const { bucket, key } = interest;
  const over = new AbortController();
  const got: KeyChange[] = [];
  const client = createClient({ url: pickOf(nodes), apiKey: nodes.key });
  const options = { after: 0, ...(key !== undefined && { key }), signal: over.signal };
  const going = (async () => {
    for await (const change of client.kv.watch(bucket, options))
      got.push({ revision: change.revision, key: change.key, text: change.text() });
  })();
  const watcher: KeyWatcher = {
    about: `SDK, ${bucket} ${key ?? ""}`,
    interest,
    got,
    resumes: 0,
    async stop() {
      over.abort();
      await going;
    },
  };
  going.catch((error) => {
    watcher.about += `: ${error}`;
  });
  return watcher;
}
