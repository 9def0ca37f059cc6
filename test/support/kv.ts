import { expect } from "bun:test";
import { watchFrames } from "../../src/domain/state/kv/operations.ts";
import { sql } from "../../src/kit/sql.ts";
import type { CallOptions, TestServer } from "./server.ts";
import { openSocket, type TestSocket } from "./sockets.ts";

export const base = "/api/v1/kv/buckets";
export const pathOf = (bucket: string, key: string) => `${base}/${bucket}/keys/${encodeURIComponent(key)}`;

export const expectFault = (answer: { status: number; body: unknown }, status: number, fault: object) =>
  expect([answer.status, answer.body]).toEqual([status, expect.objectContaining(fault)]);

/** The key-value store of a server, as its callers have it. */
export function kvOf(server: () => TestServer) {
  const make = async (name: string, more: object = {}, options: CallOptions = {}) => {
    const answer = await server().api(base, { body: { name, ...more }, ...options });
    expect([answer.status, answer.body]).toEqual([201, expect.objectContaining({ name })]);
    return answer.body;
  };
  /** The body goes as it is. */
  const put = async (
    path: string,
    body: string | Uint8Array,
    { key = server().adminKey, headers = {} }: { key?: string; headers?: Record<string, string> } = {},
  ) => {
    const response = await fetch(`${server().url}${path}`, {
      method: "PUT",
      headers: { authorization: `Bearer ${key}`, ...headers },
      body: body as BodyInit,
    });
    return { status: response.status, headers: response.headers, body: await response.json() };
  };
  const get = (path: string, options: CallOptions = {}) => server().api(path, options);
  const textOf = async (path: string) => {
    const { status, body } = await get(path);
    return status === 200 ? Buffer.from(body.value, "base64").toString() : status;
  };
  const remove = (path: string, options: CallOptions = {}) =>
    server().api(path, { method: "DELETE", ...options });
  const environment = async (name: string) => {
    const { id } = (await server().api("/api/v1/environments", { body: { name } })).body;
    const { key } = (await server().api("/api/v1/apikeys", { body: { name, env_id: id } })).body;
    return { id: id as string, key: key as string };
  };
  const rowsOf = async (table: string, environmentId = server().env): Promise<number> => {
    const query = sql`SELECT count(*) AS count FROM ${sql.raw(table)} WHERE environment_id = ${environmentId}`;
    return (await server().running.domain.store.one<{ count: number }>(query))!.count;
  };
  const isBalanced = async (options: CallOptions = {}) => {
    const { checks } = (await get("/api/v1/integrity", options)).body;
    return checks.find(({ name }: { name: string }) => name === "kv.buckets").count === 0;
  };
  /** Rejects when it is refused. */
  const watch = (
    bucket: string,
    query = "",
    { key = server().adminKey, headers = {} }: { key?: string; headers?: Record<string, string> } = {},
  ): Promise<TestSocket> =>
    openSocket(server().url, {
      at: { path: `${base}/${bucket}/watch`, frames: watchFrames },
      query,
      headers: { authorization: `Bearer ${key}`, ...headers },
    });
  return { make, put, get, watch, textOf, remove, environment, rowsOf, isBalanced };
}
