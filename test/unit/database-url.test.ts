import { expect, test } from "bun:test";
import { readDatabaseUrl } from "../../src/kit/database-url.ts";
import { parseSettings } from "../../src/settings/settings.ts";

const urlsOf = (text: string) => {
  const read = readDatabaseUrl(text);
  return read.ok ? read.urls : read.flaw;
};

test("a list of hosts is one URL for each, and who asked for a writable server is asked by us", () => {
  expect(urlsOf("postgres://u:p@h1:5432,h2:5433/db?target_session_attrs=read-write&sslmode=require")).toEqual(
    ["postgres://u:p@h1:5432/db?sslmode=require", "postgres://u:p@h2:5433/db?sslmode=require"],
  );
  expect(urlsOf("postgresql://u:a,b@[::1]:5432,10.0.0.2/db")).toEqual([
    "postgresql://u:a,b@[::1]:5432/db",
    "postgresql://u:a,b@10.0.0.2/db",
  ]);
  expect(urlsOf("postgres://u:p%2Fq@db/svc?target_session_attrs=primary")).toEqual([
    "postgres://u:p%2Fq@db/svc",
  ]);
  // The driver's own host.
  expect(urlsOf("postgres:///svc")).toEqual(["postgres:///svc"]);
});

test.each([
  [
    "postgres://u:hush@h1%2Ch2/db",
    "the host must be a name or an address, commas between hosts are not encoded",
  ],
  ["postgres://u:hush@h1,/db", "host 2 must be a name"],
  ["postgres://u:hush@h1, h2/db", "host 2 must be a name"],
  ["postgres://u:hush@h1:5432,h2:70000/db", "the port of host 2 must be from 1 to 65535"],
  ["postgres://u:hush@h1:0/db", "the port of the host must be from 1 to 65535"],
  ["postgres://u:hush@h1:x,h2/db", "host 1 must be a name"],
  [
    "postgres://u:hush@h1,h2/db?target_session_attrs=any",
    "target_session_attrs must be read-write or primary",
  ],
  ["postgres:///db?host=h1,h2", "not in host="],
  [`postgres://u:hush@${Array.from({ length: 17 }, (_, n) => `h${n}`)}/db`, "at most 16 hosts"],
  ["mysql://u:hush@h1/db", "neither postgres:// nor postgresql://"],
  ["postgres://u:hu/sh@h1/db", "must be a name"],
])("%s is refused by its setting and the rule, without the password", (text, flaw) => {
  const outcome = parseSettings([], { SVC_DATABASE_URL: text });
  const [error, ...others] = outcome.ok ? [] : outcome.errors;
  expect(others).toEqual([]);
  expect(error).toStartWith(
    "SVC_DATABASE_URL: must be a URL such as postgres://user:password@host:5432/database",
  );
  expect(error).toContain(flaw);
  expect(error).not.toContain("hush");
});
