import { afterAll, beforeAll, expect, test } from "bun:test";
import { feedHints } from "../../src/app/log.ts";
import type { BusTransport } from "../../src/bus/bus.ts";
import { busOver } from "../../src/bus/channel.ts";
import { openNatsTransport } from "../../src/bus/nats.ts";
import type { LogHint } from "../../src/domain/log/core/feed-reader.ts";
import { systemClock, testClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { sharedNats } from "../support/nats.ts";
import { until } from "../support/until.ts";

const transports: BusTransport[] = [];
/** Time as the hints see it; NATS goes by the machine's. */
const clock = testClock();

beforeAll(async () => {
  const { url } = await sharedNats();
  const prefix = `feed-hints-${process.pid}.`;
  for (const nodeId of ["a", "b"])
    transports.push(openNatsTransport({ clock: systemClock(), log: silentLog, nodeId, url, prefix }));
  await until(() => transports.every((one) => one.present().length === 2), {
    about: "each other",
    deadlineMs: 20_000,
  });
});
afterAll(() => Promise.all(transports.map((one) => one.close())));

test("a reader says so at its first hint and gets events from then on, until ten seconds after it said so last", async () => {
  const [a, b] = transports.map((transport, place) =>
    feedHints({ bus: busOver(transport, silentLog), clock, nodeId: "ab"[place]! }, "log"),
  );
  const topics = feedHints({ bus: busOver(transports[0]!, silentLog), clock, nodeId: "a" }, "topics");
  const [isRead, isOwn] = ["env_read", "env_own"];
  const entry = { position: 1, data: "{}", metadata: null };
  const heard: LogHint<typeof entry>[] = [];
  const stops = [
    b!.listen(isRead, (hint) => void heard.push(hint as LogHint<typeof entry>)),
    a!.listen(isOwn, () => {}),
  ];
  /** What is on its way arrives, and what that sets on its way. */
  const settle = async () => {
    for (let turn = 0; turn < 3; turn++) for (const one of transports) await one.listening(5_000);
  };
  await settle();
  let head = 0;
  /** As a feed does it. */
  const tell = async (environmentId = isRead) => {
    const isCarried = a!.hasReadersElsewhere(environmentId);
    a!.publishHint({ environmentId, head: ++head, ...(isCarried && { events: [entry] }) });
    await settle();
    return isCarried;
  };

  expect([await tell(), await tell()]).toEqual([false, true]);
  expect(heard).toEqual([
    { environmentId: isRead, head: 1 },
    { environmentId: isRead, head: 2, events: [entry] },
  ]);
  // Said at 0 and, with the first hint after five seconds, at 5,000: believed until 15,000.
  clock.advance(4_999);
  expect(await tell()).toBe(true);
  clock.advance(1);
  expect(await tell()).toBe(true);
  clock.advance(9_999);
  expect(a!.hasReadersElsewhere(isRead)).toBe(true);
  clock.advance(1);
  expect([await tell(), await tell()]).toEqual([false, true]);

  // What a node follows itself is no reader elsewhere.
  expect([await tell(isOwn), await tell(isOwn)]).toEqual([false, false]);
  expect(topics.hasReadersElsewhere(isRead)).toBe(false);

  for (const stop of stops) stop();
  clock.advance(10_000);
  expect([await tell(), await tell()]).toEqual([false, false]);
});
