import { describe, expect, test } from "bun:test";
import { testClock } from "../../src/kit/clock.ts";
import { type LogLevel, logLines } from "../../src/kit/log-lines.ts";
import { version } from "../../src/kit/version.ts";
import { sdkVersion } from "../../src/sdk/wire/version.ts";

function lines(format: "json" | "text", level: LogLevel = "info") {
  const written: string[] = [];
  const log = logLines({
    format,
    level,
    clock: testClock(0),
    base: { node: "n1" },
    write: (line) => written.push(line),
  });
  return { log, written };
}

const key = `ifkey_${"0123456789abcdef".repeat(2)}`;

describe.each(["json", "text"] as const)("%s", (format) => {
  test("no secret gets through, wherever it stands", () => {
    const { log, written } = lines(format);
    const error = new Error(`cannot reach postgres://svc:hush@db/svc with ${key}`, {
      cause: new Error("Authorization: Bearer hush.hush"),
    });
    log.error("it.failed", {
      error,
      password: "hush",
      headers: { Authorization: "hush", cookie: "hush" },
      list: [{ token: "hush" }],
      said: `?token=${key}`,
    });
    const all = written.join("");
    expect(all).not.toContain("hush");
    expect(all).not.toContain(key.slice(6));
    expect(all).toContain("[REDACTED]");
    expect(all).toContain("it.failed");
    expect(all).toContain("cannot reach postgres://");
  });

  test("lines below the level are not written", () => {
    const { log, written } = lines(format, "warn");
    log.debug("a");
    log.info("b");
    log.warn("c");
    log.error("d");
    expect(written).toHaveLength(2);
    const silent = lines(format, "silent");
    silent.log.error("e");
    expect(silent.written).toEqual([]);
  });

  test("a line ends where it ends", () => {
    const { log, written } = lines(format);
    log.info("odd", { text: "two\nlines", circle: 12n, none: undefined });
    expect(written).toHaveLength(1);
    expect(written[0]?.match(/\n/g)).toHaveLength(1);
  });
});

test("JSON lines carry level, time, node and event", () => {
  const { log, written } = lines("json");
  log.info("server.listening", { port: 9123 });
  expect(JSON.parse(written[0]!)).toEqual({
    level: "info",
    time: "1970-01-01T00:00:00.000Z",
    node: "n1",
    port: 9123,
    event: "server.listening",
  });
});

test("text lines read well", () => {
  const { log, written } = lines("text");
  log.info("server.listening", { port: 9123, about: "two words" });
  expect(written).toEqual(['00:00:00.000 info  server.listening port=9123 about="two words"\n']);
});

test("the versions of server and SDK are that of package.json", async () => {
  const manifest = await Bun.file(new URL("../../package.json", import.meta.url)).json();
  expect([version, sdkVersion]).toEqual(Array(2).fill(manifest.version));
});
