import { createClient, type Place, type Subscription } from "../../src/sdk/index.ts";
import { bearerProtocol } from "../support/sockets.ts";
import type { Chance } from "./faults.ts";

/** What one event of the chaos is. */
export interface Logged {
  /** Positions are of one of the two. */
  log: "events" | "topics";
  position: number;
  name: string;
  n: number;
}

export interface Interest {
  pattern: string;
  filter?: string;
  /** Topics instead of events. */
  log?: "topics";
  /** The same, by other means. */
  wants: (event: Logged) => boolean;
}

export const isWanted = (interest: Interest, one: Logged) =>
  one.log === (interest.log ?? "events") && interest.wants(one);

export const interests: readonly Interest[] = [
  { pattern: "chaos.>", wants: () => true },
  { pattern: "events:chaos.*.x", wants: ({ name }) => name.endsWith(".x") },
  { pattern: "chaos.a.*", wants: ({ name }) => name.startsWith("chaos.a.") },
  { pattern: "chaos.b.y", wants: ({ name }) => name === "chaos.b.y" },
  { pattern: "chaos.>", filter: "data.n % 3 == 0", wants: ({ n }) => n % 3 === 0 },
  {
    pattern: "events:chaos.*.*",
    filter: 'topic != "events:chaos.c.x" && data.n > 100',
    wants: ({ name, n }) => name !== "chaos.c.x" && n > 100,
  },
  { pattern: "topic:chaos.>", log: "topics", wants: () => true },
  {
    pattern: "topic:chaos.*.y",
    filter: "data.n % 2 == 0",
    log: "topics",
    wants: ({ name, n }) => name.endsWith(".y") && n % 2 === 0,
  },
];

export interface Reader {
  about: string;
  interest: Interest;
  /** Positions as they came, after what the reader itself leaves out. */
  got: number[];
  /** Frames that came again, of all that came. */
  repeats: number;
  moves: number;
  /** Connections that began behind a last sequence, and what came over them that was logged before they were opened. */
  resumes: number;
  missed: number;
  ready: Promise<void>;
  stop(): Promise<void>;
}

export interface Nodes {
  urls: readonly string[];
  key: string;
  chance: Chance;
  /** How long a reader stays at a node, at the most. */
  stayMsMax: number;
}

export const pickOf = ({ urls, chance }: Nodes) => urls[Math.floor(chance() * urls.length)]!;
/** Until a reader turns to another node of its own accord. */
export const stayMs = ({ chance, stayMsMax }: Pick<Nodes, "chance" | "stayMsMax">) =>
  300 + chance() * (stayMsMax - 300);

/** A bare socket that knows its last sequence, and nothing else of what the SDK does. */
export function bareReader(nodes: Nodes, interest: Interest): Reader {
  const { chance, key } = nodes;
  let last: string | undefined;
  let raw: WebSocket | undefined;
  let over = false;
  const started = Promise.withResolvers<void>();
  const reader: Reader = {
    about: `bare socket, ${interest.pattern} ${interest.filter ?? ""}`,
    interest,
    got: [],
    repeats: 0,
    moves: 0,
    resumes: 0,
    missed: 0,
    ready: started.promise,
    async stop() {
      over = true;
      raw?.close();
      await Promise.race([going, Bun.sleep(5_000)]);
    },
  };

  /** One connection, until it is closed. */
  const connect = () =>
    new Promise<void>((closed) => {
      // A socket that never opened may close without a word.
      const leave = () => {
        socket.close();
        setTimeout(closed, 1_000);
      };
      const socket = new WebSocket(`${pickOf(nodes).replace("http", "ws")}/ws`, [
        "svc.v1",
        bearerProtocol(key),
      ]);
      raw = socket;
      // A node that is killed in the middle of a handshake answers nothing any more.
      let leaving = setTimeout(leave, 3_000);
      const openedAt = Date.now();
      const isResumed = last !== undefined;
      socket.onopen = () => {
        const options = {
          includeMetadata: true,
          withStart: true,
          ...(interest.filter !== undefined && { filter: interest.filter }),
          ...(last !== undefined && { startAfterSequence: last }),
        };
        socket.send(
          JSON.stringify({ type: "subscribe", subscription: { pattern: interest.pattern, options } }),
        );
      };
      socket.onmessage = ({ data }) => {
        if (raw !== socket) return;
        const frame = JSON.parse(String(data));
        if (frame.type === "subscription_result") {
          const [{ status, startSequence }] = frame.results;
          if (status !== "ok") return leave();
          if (isResumed) reader.resumes++;
          last ??= startSequence as string;
          started.resolve();
          clearTimeout(leaving);
          leaving = setTimeout(leave, stayMs(nodes));
        } else if (frame.type === "event") {
          const sequence = Number(frame.meta.sequence);
          // Only the frame that was under way may come again: the last one.
          if (last === `${sequence}`) reader.repeats++;
          else {
            if (isResumed && Date.parse(frame.meta.timestamp) < openedAt) reader.missed++;
            reader.got.push(sequence);
            last = `${sequence}`;
          }
        }
      };
      socket.onclose = () => {
        clearTimeout(leaving);
        closed();
      };
    });
  const going = (async () => {
    while (!over) {
      await connect();
      reader.moves++;
      await Bun.sleep(20 + chance() * 200);
    }
  })();
  return reader;
}

/** The SDK's subscription, which finds its way back by itself, and a person who takes it elsewhere. */
export function sdkReader(nodes: Nodes, interest: Interest, over: "websocket" | "connect"): Reader {
  const { chance, key } = nodes;
  let place: Place | undefined;
  let isOver = false;
  let now: Subscription | undefined;
  const started = Promise.withResolvers<void>();
  const reader: Reader = {
    about: `SDK over ${over}, ${interest.pattern} ${interest.filter ?? ""}`,
    interest,
    got: [],
    repeats: 0,
    moves: 0,
    resumes: 0,
    missed: 0,
    ready: started.promise,
    async stop() {
      isOver = true;
      now?.close();
      await going;
    },
  };
  const follow = async () => {
    const client = createClient({ url: pickOf(nodes), apiKey: key });
    const bufferMax = chance() < 0.3 ? 5 : 1_000;
    const options = { over, after: place, bufferMax, ...(interest.filter && { filter: interest.filter }) };
    const subscription = client.subscribe<string>(interest.pattern, options);
    now = subscription;
    const openedAt = Date.now();
    const isResumed = place !== undefined;
    subscription.ready.then(
      () => {
        started.resolve();
        if (isResumed) reader.resumes++;
      },
      () => {},
    );
    // Before there is a place the first node must be waited for.
    const leaving = setTimeout(() => (place ?? subscription.place) && subscription.close(), stayMs(nodes));
    for await (const { sequence, timestamp } of subscription) {
      if (isResumed && Date.parse(timestamp!) < openedAt) reader.missed++;
      reader.got.push(sequence!);
      if (isOver) break;
    }
    clearTimeout(leaving);
    place = subscription.place ?? place;
  };
  const going = (async () => {
    for (; !isOver; reader.moves++) await follow();
  })();
  return reader;
}
