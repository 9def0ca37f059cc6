import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import { driven } from "../dashboard/driven.ts";
import { dashboardSources, everyWay, fits, writesOf } from "../support/dashboard-writes.ts";

const ways = await everyWay();
/** A page of this text, in which `#{` begins what a template holds. */
const of = (text: string) =>
  writesOf([{ path: "src/dashboard/pages/planted.tsx", text: text.replaceAll("#{", "${") }], ways);

describe("what the dashboard's pages write", () => {
  test("is driven in a browser, each operation by a file that says so", async () => {
    const { names, strays } = writesOf(await dashboardSources(), ways);
    expect(strays, "a path that no operation fits").toEqual([]);
    expect([...new Set<string>(Object.values(driven).flat())].sort(), "test/dashboard/driven.ts").toEqual(
      [...names].sort(),
    );
    for (const file of Object.keys(driven)) {
      const text = await Bun.file(join(import.meta.dir, `../dashboard/${file}.test.ts`)).text();
      expect([file, /notGranted\(driven(?:\.\w+|\["[\w-]+"\])\)/.test(text)]).toEqual([file, true]);
    }
  });

  test("is found however a page asks: by a method's name, a path in parts, a constant, a choice of two", () => {
    const texts = {
      "runs.cancel": 'const act = () => call("CancelRun", { id });',
      "users.delete": 'rest(`#{path}/users/#{one(id)}`, { method: "DELETE" })',
      "kv.put": [
        "const pathOf = (bucket: string) => `/api/v1/kv/buckets/#{one(bucket)}`;",
        "const keyPath = (bucket: string, key: string) => `#{pathOf(bucket)}/keys/#{key}`;",
        'rest<{ revision: number }>(`#{keyPath(bucket, key)}#{queryOf({ ttl })}`, { method: "PUT", bytes });',
      ].join("\n"),
      "platform.auth.login":
        'const path = isOwn ? "/api/v1/platform/auth/login" : "/api/v1/auth/login";\nrest(path, { body });',
    };
    for (const [name, text] of Object.entries(texts))
      expect([name, [...of(text).names]]).toEqual([name, expect.arrayContaining([name])]);
    expect([
      ...of('rest(`/api/v1/users/#{id}`, { signal }); rest("/api/v1/repairs/preview", { body });').names,
    ]).toEqual([]);
    expect(of('\nrest("/api/v1/nothing", { body });').strays).toEqual(["src/dashboard/pages/planted.tsx:2"]);
  });

  test("is known by the address that a browser asked for", () => {
    const named = (method: string, path: string) =>
      ways.find((way) => way.method === method && fits(path, way))?.name;
    expect(named("PUT", "/api/v1/kv/buckets/carts/keys/users/ada")).toBe("kv.put");
    expect(named("POST", "/api/v1/auth/sessions/end-others")).toBe("auth.endOtherSessions");
    expect(named("DELETE", "/api/v1/users/usr_1")).toBe("users.delete");
  });
});
