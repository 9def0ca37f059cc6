import { expect, test } from "bun:test";
import { SvcError } from "../../src/sdk/wire/errors.ts";
import { LeaseRefreshes } from "../../src/sdk/worker/lease-refreshes.ts";
import { StreamReports } from "../../src/sdk/worker/stream-reports.ts";

const endFor = (message: string) => new SvcError("resource_exhausted", message, { status: 429 });
const tooLarge = endFor("message size 30 is larger than it may be");

/** Reports that are sent on one stream after the other, which end as the test says. */
function sending() {
  const reports = new StreamReports();
  const open = () => {
    const sent: string[] = [];
    reports.attach({
      send: (message) => void sent.push((message as { report: { jobId: string } }).report.jobId),
      hangUp() {},
      destroy() {},
    });
    return sent;
  };
  const lose = (error?: SvcError) => {
    reports.detach();
    if (error) reports.ended(error);
  };
  const outcomeOf = (jobId: string, text: string) => {
    const { done } = reports.send({ jobId, text });
    return done.then(String, (error: SvcError) => `${error.status} ${error.code}: ${error.message}`);
  };
  return { reports, open, lose, outcomeOf };
}

test("three streams that end for the size of a report refuse that one, and the others are sent again", async () => {
  const { reports, open, lose, outcomeOf } = sending();
  const first = open();
  const [small, large, wide] = [
    outcomeOf("small", "x"),
    // Fewer letters than the next one, and more bytes.
    outcomeOf("large", "é".repeat(80)),
    outcomeOf("wide", "x".repeat(100)),
  ];
  expect(first).toEqual(["small", "large", "wide"]);
  for (let tries = 1; tries <= 3; tries++) {
    lose(tooLarge);
    expect(open()).toEqual(tries < 3 ? ["small", "large", "wide"] : ["small", "wide"]);
  }
  expect(await large).toBe(`413 REPORT_TOO_LARGE: ${tooLarge.message}`);
  reports.answered({ number: "1" });
  reports.answered({ number: "3", status: 400, error: "steps[0].name: too long" });
  expect(await Promise.all([small, wide])).toEqual([
    "stored",
    "400 invalid_argument: steps[0].name: too long",
  ]);
});

test("a report that is larger than the server says it may be is refused at once", async () => {
  const { open, lose, outcomeOf } = sending();
  open();
  const large = outcomeOf("large", "x".repeat(300));
  outcomeOf("small", "x");
  const said = "message size 370 is larger than configured readMaxBytes 200";
  lose(endFor(said));
  expect(open()).toEqual(["small"]);
  expect(await large).toBe(`413 REPORT_TOO_LARGE: ${said}`);
});

test("a heartbeat after large reports is waited for as long as these may take", async () => {
  const socket = { send() {}, hangUp() {}, destroy() {} };
  const lateAfter = (bytes: number) => {
    const since = performance.now();
    return new Promise<number>((late) => {
      const onLate = () => late(performance.now() - since);
      const how = { timeoutMs: 10, reportedBytes: () => bytes, onLate };
      void new LeaseRefreshes().ask(socket, "w", [], how);
    });
  };
  expect(await lateAfter(6_400)).toBeGreaterThan(100);
  expect(await lateAfter(0)).toBeGreaterThan(9);
});

test("a server that cannot be reached, or has no room, costs a report no try", async () => {
  const { reports, open, lose, outcomeOf } = sending();
  open();
  const outcome = outcomeOf("a", "x".repeat(100));
  const others = [
    undefined,
    new SvcError("unreachable", "the stream was cut", { retryable: true }),
    new SvcError("resource_exhausted", "too many request bodies at once, try again", { status: 429 }),
  ];
  for (let round = 0; round < 4; round++)
    for (const error of others) {
      lose(error);
      expect(open()).toEqual(["a"]);
    }
  reports.answered({ number: "1" });
  expect(await outcome).toBe("stored");
});
