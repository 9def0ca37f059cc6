import { expect } from "bun:test";
import type { Caller, CallOptions } from "./server.ts";
import { until } from "./until.ts";

/** What tests of projections say to a server. */
export function projectionCaller(server: Caller & { url: string; adminKey: string }) {
  const call = (method: string, body: object, options: CallOptions = {}) =>
    server.rpc("ProjectionService", method, body, options);
  const ok = async (method: string, body: object, options: CallOptions = {}) => {
    const answer = await call(method, body, options);
    expect([method, answer.status, answer.body]).toEqual([method, 200, expect.anything()]);
    return answer.body;
  };
  let count = 0;
  return {
    call,
    ok,
    /** A projection of a name of its own, of events of one name. */
    async registered(word: string, more: object = {}) {
      const name = `${word}_${++count}`;
      const event = `${word}${count}.happened`;
      await ok("RegisterProjection", { name, events: [event], ...more });
      return { name, event };
    },
    async emit(event: string, data: unknown = {}, options: CallOptions = {}) {
      const { status, body } = await server.rpc("SvcService", "Emit", { event, data }, options);
      expect(status).toBe(200);
      return { id: body.eventId as string, seq: Number(body.sequence) };
    },
    poll: (name: string, more: object = {}) => ok("PollProjectionEvents", { name, ...more }),
    save: (name: string, seq: number, state: unknown, more: object = {}) =>
      call("SaveProjectionState", {
        ...{ name, partitionKey: "__global__", state, lastEventSeq: `${seq}` },
        ...more,
      }),
    status: (name: string) => ok("GetProjectionStatus", { name }),
    stream: (method: string, body: object, key = server.adminKey) =>
      openFrames(`${server.url}/svc.v1.ProjectionService/${method}`, body, key),
  };
}

// biome-ignore lint/suspicious/noExplicitAny: messages as they come
export const idsOf = (polled: any): string[] => polled.events.map(({ id }: { id: string }) => id);

export interface Frames {
  status: number;
  /** The body of a refusal by status. */
  refusal: { code?: string; message?: string } | undefined;
  // biome-ignore lint/suspicious/noExplicitAny: tests state the shape they expect
  frames: any[];
  /** What the last message says; undefined until the stream is over. */
  end(): { error?: { code: string; message: string } } | undefined;
  /** Resolves once so many frames are there that `wanted` keeps. */
  // biome-ignore lint/suspicious/noExplicitAny: as above
  wait(count: number, wanted?: (frame: any) => boolean): Promise<any[]>;
  over(): Promise<void>;
  cut(): void;
}

const endOfStream = 2;

/** A stream as existing clients read it: JSON messages in envelopes over a plain POST. */
export async function openFrames(
  url: string,
  asked: object,
  key: string,
  headers: Record<string, string> = {},
): Promise<Frames> {
  const body = new TextEncoder().encode(JSON.stringify(asked));
  const framed = new Uint8Array(5 + body.length);
  new DataView(framed.buffer).setUint32(1, body.length);
  framed.set(body, 5);
  const cut = new AbortController();
  const answer = await fetch(url, {
    method: "POST",
    headers: {
      ...headers,
      ...{ authorization: `Bearer ${key}`, "content-type": "application/connect+json" },
    },
    body: framed,
    signal: cut.signal,
  });
  const frames: unknown[] = [];
  let end: { error?: { code: string; message: string } } | undefined;
  let isOver = false;
  let refusal: Frames["refusal"];
  if (answer.status !== 200) refusal = (await answer.json()) as Frames["refusal"];
  const reading = (async () => {
    if (refusal) return;
    let bytes = new Uint8Array(0);
    for await (const piece of answer.body!) {
      bytes = new Uint8Array(Buffer.concat([bytes, piece]));
      for (;;) {
        if (bytes.length < 5) break;
        const length = new DataView(bytes.buffer).getUint32(1);
        if (bytes.length < 5 + length) break;
        const message = JSON.parse(new TextDecoder().decode(bytes.slice(5, 5 + length)));
        if ((bytes[0]! & endOfStream) !== 0) end = message;
        else frames.push(message);
        bytes = bytes.slice(5 + length);
      }
    }
  })()
    .catch(() => {})
    .finally(() => {
      isOver = true;
    });
  return {
    status: answer.status,
    refusal,
    frames,
    end: () => end,
    async wait(count, wanted = () => true) {
      await until(() => frames.filter(wanted).length >= count, { about: `${count} frames` });
      return frames.filter(wanted);
    },
    async over() {
      await until(() => isOver, { about: "the end of the stream" });
      await reading;
    },
    cut: () => cut.abort(),
  };
}

/** Not a heartbeat. */
export const isEvent = (frame: { kind?: string }): boolean => frame.kind === undefined;
