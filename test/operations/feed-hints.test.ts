import { afterAll, beforeAll, expect, test } from "bun:test";
import { feedHints } from "../../src/app/feed-hints.ts";
import type { BusTransport } from "../../src/bus/bus.ts";
import { busOver } from "../../src/bus/channel.ts";
import { openNatsTransport } from "../../src/bus/nats.ts";
import type { LogHint } from "../../src/domain/log/log/feed-reader.ts";
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

test("a reader asks for the events themselves when a hint came without them, and is forgotten ten seconds later", async () => {
  const [a, b] = transports.map((transport, place) =>
    feedHints({ bus: busOver(transport, silentLog), clock, nodeId: "ab"[place]! }, "log"),
  );
  const topics = feedHints({ bus: busOver(transports[0]!, silentLog), clock, nodeId: "a" }, "topics");
  const [isRead, isUnread] = ["env_read", "env_unread"];
  const entry = { position: 1, data: "{}", metadata: null };
  const heard: LogHint<typeof entry>[] = [];
  const stop = b!.listen(isRead, (hint) => void heard.push(hint as LogHint<typeof entry>));
  // What this node follows itself is no reader elsewhere.
  const stopOwn = a!.listen(isUnread, () => {});
  await transports[0]!.listening(5_000);
  await transports[1]!.listening(5_000);
  let head = 0;
  /** As a feed does it. */
  const tell = async (environmentId = isRead) => {
    head++;
    const isCarried = a!.hasReadersElsewhere(environmentId);
    a!.publishHint({ environmentId, head, ...(isCarried && { events: [entry] }) });
    if (environmentId === isRead)
      await until(() => heard.at(-1)?.head === head, { about: "the hint", everyMs: 1 });
    return isCarried;
  };
  const known = (environmentId = isRead) =>
    until(() => a!.hasReadersElsewhere(environmentId), { about: "the reader to be known", everyMs: 1 });

  expect(await tell()).toBe(false);
  await known();
  expect(await tell()).toBe(true);
  expect(heard).toEqual([
    { environmentId: isRead, head: 1 },
    { environmentId: isRead, head: 2, events: [entry] },
  ]);
  await tell(isUnread);
  await transports[0]!.listening(5_000);
  expect(a!.hasReadersElsewhere(isUnread)).toBe(false);
  expect(topics.hasReadersElsewhere(isRead)).toBe(false);

  clock.advance(9_999);
  expect(await tell()).toBe(true);
  clock.advance(1);
  expect(await tell()).toBe(false);
  await known();
  expect(await tell()).toBe(true);

  stop();
  stopOwn();
  clock.advance(10_000);
  expect(a!.hasReadersElsewhere(isRead)).toBe(false);
});
