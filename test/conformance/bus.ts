import { describe, expect, test } from "bun:test";
import { Type } from "@sinclair/typebox";
import { BusError, type BusTransport } from "../../src/bus/bus.ts";
import { busOver } from "../../src/bus/channel.ts";
import { loggedLines } from "../support/logged.ts";
import { until } from "../support/until.ts";

export interface BusCase {
  /** Connected nodes of one bus, with ids `n1`, `n2`, … */
  open(count: number): Promise<BusTransport[]>;
  close(): Promise<void>;
}

const Moved = Type.Object({ from: Type.String(), count: Type.Optional(Type.Integer()) });

/** Messages that no node of ours sends. */
const malformed = ["", "{", "null", "7", "[]", "{}", '{"from":1}', '{"from":"a","count":"2"}', "\xff\xfe"];

const text = (payload: Uint8Array) => new TextDecoder().decode(payload);

/** What every bus promises, whoever carries the messages. */
export function busConformance(name: string, start: () => Promise<BusCase>): void {
  const nodes = async (count: number, work: (...buses: BusTransport[]) => Promise<void>) => {
    const one = await start();
    try {
      await work(...(await one.open(count)));
    } finally {
      await one.close();
    }
  };

  /** A subscription needs a moment to reach the server: hint until it is heard. */
  const hears = async (from: BusTransport, to: BusTransport) => {
    let heard = false;
    const stop = to.onHint("probe", () => {
      heard = true;
    });
    await until(
      () => {
        from.hint("probe", "");
        return heard;
      },
      { deadlineMs: 20_000, everyMs: 10, about: "a hint between two nodes" },
    );
    stop();
  };

  describe(`bus: ${name}`, () => {
    test("what is hinted once a node is listening reaches it, every time", () =>
      nodes(2, async (a, b) => {
        const got: string[] = [];
        for (let n = 0; n < 200; n++) {
          b!.onHint(`fresh.${n}`, (_, subject) => got.push(subject));
          await b!.listening(20_000);
          a!.hint(`fresh.${n}`, "");
        }
        await until(() => got.length === 200, { deadlineMs: 20_000, everyMs: 5, about: "all of them" });
      }));

    test("a hint reaches every node that listens, the sender included", () =>
      nodes(2, async (a, b) => {
        await hears(a!, b!);
        const got: string[] = [];
        a!.onHint("dispatch", (payload) => got.push(`a ${text(payload)}`));
        b!.onHint("dispatch", (payload) => got.push(`b ${text(payload)}`));
        await hears(a!, b!);
        a!.hint("dispatch", "lanes");
        await until(() => got.length === 2, { deadlineMs: 20_000, everyMs: 5, about: "both nodes" });
        expect(got.sort()).toEqual(["a lanes", "b lanes"]);
      }));

    test("hints of one sender arrive in order, and only where the pattern matches", () =>
      nodes(2, async (a, b) => {
        const got: string[] = [];
        b!.onHint("log.*", (payload, subject) => got.push(`${subject}=${text(payload)}`));
        const all: string[] = [];
        b!.onHint("log.>", (_payload, subject) => all.push(subject));
        await hears(a!, b!);
        for (let n = 0; n < 50; n++) a!.hint("log.env", `${n}`);
        a!.hint("log.env.deep", "no");
        a!.hint("other", "no");
        a!.hint("log.last", "end");
        await until(() => got.at(-1) === "log.last=end", {
          deadlineMs: 20_000,
          everyMs: 5,
          about: "the last hint",
        });
        expect(got).toEqual([...Array.from({ length: 50 }, (_, n) => `log.env=${n}`), "log.last=end"]);
        expect(all.filter((subject) => subject === "log.env.deep")).toHaveLength(1);
      }));

    test("after unlistening nothing comes, and a handler that throws harms nobody", () =>
      nodes(2, async (a, b) => {
        const got: string[] = [];
        const stop = b!.onHint("x", () => got.push("stopped"));
        b!.onHint("x", () => {
          throw new Error("mine");
        });
        b!.onHint("x", (payload) => got.push(text(payload)));
        stop();
        await hears(a!, b!);
        a!.hint("x", "1");
        await until(() => got.length > 0, { deadlineMs: 20_000, everyMs: 5, about: "the hint" });
        expect(got).toEqual(["1"]);
      }));

    test("a request is answered by one node; an error there is an error here", () =>
      nodes(2, async (a, b) => {
        b!.onRequest("double", async (payload) => `${Number(text(payload)) * 2}`);
        b!.onRequest("fails", async () => {
          throw new Error("no such thing");
        });
        await hears(a!, b!);
        expect(text(await a!.request("double", "21", 20_000))).toBe("42");
        const failure = await a!.request("fails", "", 20_000).catch((error: unknown) => error);
        expect(failure).toBeInstanceOf(BusError);
        expect(failure).toMatchObject({ trouble: "remote", message: "no such thing" });
      }));

    test("what is sent is taken, or the sender is told why not", () =>
      nodes(2, async (a, b) => {
        const got: string[] = [];
        b!.onHint("runs.control", (payload) => got.push(text(payload)));
        await hears(a!, b!);
        await a!.send("runs.control", "stop", 20_000);
        await until(() => got.length === 1, { deadlineMs: 20_000, everyMs: 5, about: "what was sent" });
        expect(got).toEqual(["stop"]);
        for (const subject of ["runs.*", "runs.>", "runs..control", "runs control", ""]) {
          const refused = await a!.send(subject, "", 20_000).catch((error: unknown) => error);
          expect(refused).toMatchObject({ trouble: "refused" });
        }
        await a!.close();
        const closed = await a!.send("runs.control", "late", 20_000).catch((error: unknown) => error);
        expect(closed).toMatchObject({ trouble: "disconnected" });
      }));

    test("nobody there is told at once, a late answer after the time", () =>
      nodes(2, async (a, b) => {
        await hears(a!, b!);
        const nobody = await a!.request("nowhere", "", 20_000).catch((error: unknown) => error);
        expect(nobody).toMatchObject({ trouble: "no_responders" });
        b!.onRequest("slow", () => new Promise(() => {}));
        await hears(a!, b!);
        const late = await a!.request("slow", "", 100).catch((error: unknown) => error);
        expect(late).toMatchObject({ trouble: "timeout" });
      }));

    test("all nodes are asked at once", () =>
      nodes(3, async (a, b, c) => {
        b!.onRequest("who", async () => "b");
        c!.onRequest("who", async () => "c");
        await hears(a!, b!);
        await hears(a!, c!);
        const replies = await a!.requestMany("who", "", { timeoutMs: 3_000, repliesMax: 10 });
        expect(replies.map(text).sort()).toEqual(["b", "c"]);
        expect(await a!.requestMany("nobody", "", { timeoutMs: 200, repliesMax: 10 })).toEqual([]);
      }));

    test("a malformed message is logged and dropped; the messages after it arrive", () =>
      nodes(2, async (a, b) => {
        const { log, lines } = loggedLines();
        const bus = busOver(b!, log);
        const got: object[] = [];
        bus.channel("moved", Moved).listen((message) => got.push(message));
        bus.channels("moved", Moved).listen("env", (message) => got.push(message));
        await hears(a!, b!);
        for (const payload of malformed) {
          a!.hint("moved", payload);
          a!.hint("moved.env", payload);
        }
        const sender = busOver(a!, log);
        sender.channel("moved", Moved).publish({ from: "a", count: 2 });
        expect(sender.channels("moved", Moved, 100).publish("env", { from: "a" })).toBe(true);
        expect(sender.channels("moved", Moved, 100).publish("env", { from: "a".repeat(100) })).toBe(false);
        // As a newer node sends it.
        a!.hint("moved", JSON.stringify({ from: "b", later: true }));
        const { encode, send } = sender.channel("moved", Moved);
        await send(encode({ from: "c" }), 20_000);
        await until(() => got.length === 4, {
          deadlineMs: 20_000,
          everyMs: 5,
          about: "well-formed messages",
        });
        const froms = got.map((message) => JSON.stringify(message)).sort();
        expect(froms).toEqual([
          '{"from":"a","count":2}',
          '{"from":"a"}',
          '{"from":"b","later":true}',
          '{"from":"c"}',
        ]);
        const subjects = malformed.flatMap(() => ["moved", "moved.env"]).sort();
        expect(lines.map(({ event }) => event)).toEqual(subjects.map(() => "bus.malformed_message"));
        expect(lines.map(({ fields }) => fields.subject as string).sort()).toEqual(subjects);
      }));

    test("malformed requests get an error reply, and malformed replies are left out", () =>
      nodes(3, async (a, b, c) => {
        const { log, lines } = loggedLines();
        const count = (bus: BusTransport) => busOver(bus, log).requests("count", Moved, Moved);
        let answered = 0;
        count(b!).answer(async ({ from }) => {
          answered++;
          return { from, count: 1 };
        });
        await hears(a!, b!);
        for (const payload of malformed) {
          const failure = await a!.request("count", payload, 20_000).catch((error: unknown) => error);
          expect(failure).toMatchObject({ trouble: "remote", message: "malformed request" });
        }
        expect(answered).toBe(0);
        c!.onRequest("count", async () => '{"from":7}');
        await hears(a!, c!);
        const replies = await count(a!).askAll({ from: "a" }, { timeoutMs: 3_000, repliesMax: 2 });
        expect(replies).toEqual([{ from: "a", count: 1 }]);
        expect(lines).toHaveLength(malformed.length + 1);
        for (const { event, fields } of lines) {
          expect(event).toBe("bus.malformed_message");
          expect(fields.subject).toBe("count");
        }
      }));

    test("a reply may be plain text", () =>
      nodes(2, async (a, b) => {
        const { log, lines } = loggedLines();
        const who = (bus: BusTransport) => busOver(bus, log).requests("who", Moved, "text");
        who(b!).answer(async ({ from }) => `b for ${from}`);
        await hears(a!, b!);
        expect(text(await a!.request("who", '{"from":"a"}', 20_000))).toBe("b for a");
        expect(await who(a!).askAll({ from: "a" }, { timeoutMs: 3_000, repliesMax: 1 })).toEqual(["b for a"]);
        expect(lines).toEqual([]);
      }));

    test("nodes know who is present", () =>
      nodes(2, async (a, b) => {
        await until(() => a!.present().length === 2 && b!.present().length === 2, {
          deadlineMs: 20_000,
          everyMs: 20,
          about: "both nodes present",
        });
        expect(a!.present().map((one) => one.nodeId)).toEqual(["n1", "n2"]);
        expect(a!.connected()).toBe(true);
      }));

    test("a name is one node's until it lets go or falls silent", () =>
      nodes(3, async (a, b, c) => {
        const mine = (bus: BusTransport | undefined) =>
          until(async () => (await bus!.hold("duty.x")) === "mine", {
            deadlineMs: 20_000,
            everyMs: 50,
            about: "the name",
          });
        await mine(a);
        expect(await b!.hold("duty.x")).toBe("theirs");
        expect(await b!.hold("duty.y")).toBe("mine");
        expect(await a!.hold("duty.x")).toBe("mine");
        await b!.release("duty.x");
        expect(await c!.hold("duty.x")).toBe("theirs");
        await a!.release("duty.x");
        expect(await b!.hold("duty.x")).toBe("mine");
        expect(await a!.hold("duty.x")).toBe("theirs");
        await b!.close();
        expect(await b!.hold("duty.x")).toBe("unreachable");
        await mine(c);
      }));

    test("a closed bus refuses requests and drops hints", () =>
      nodes(1, async (a) => {
        await a!.close();
        a!.hint("x", "1");
        expect(await a!.request("x", "", 100).catch((error: unknown) => error)).toMatchObject({
          trouble: "disconnected",
        });
        expect(a!.connected()).toBe(false);
      }));
  });
}
