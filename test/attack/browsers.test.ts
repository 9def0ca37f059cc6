import { expect, test } from "bun:test";
import { isNight } from "../support/night.ts";
import { engines } from "../support/server.ts";
import { attackBrowsers, type Front, suite } from "./browsers.suite.ts";

const options = { seed: 1, long: false, log() {} };

test("a page of another site reads nothing and changes nothing", async () => {
  const asked = engines.filter((engine) => isNight || engine === "libsql");
  const { attempts, breaches } = await suite.run({ ...options, engines: asked });
  expect(breaches).toEqual([]);
  expect(attempts).toBeGreaterThan(200 * asked.length);
}, 600_000);

/** Hides where requests come from: then the rule for own pages has nothing to go by. */
const blindfold: Front = (server) => {
  const proxy = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch(request) {
      const headers = new Headers(request.headers);
      for (const name of ["origin", "sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest"])
        headers.delete(name);
      const { pathname, search } = new URL(request.url);
      return fetch(server.url + pathname + search, { method: request.method, headers, body: request.body });
    },
  });
  return { url: `http://127.0.0.1:${proxy.port}`, stop: () => void proxy.stop(true) };
};

test.if(isNight)(
  "a server that cannot tell whose page asks is found out",
  async () => {
    const { breaches } = await attackBrowsers({ ...options, engines: ["libsql"] }, blindfold);
    expect(breaches.join("\n")).toContain("changed something");
  },
  600_000,
);
