import type { Static } from "@sinclair/typebox";
import type { Document, Kept } from "../../domain/state/config/operations.ts";
import { rest } from "./api.ts";
import { queryOf } from "./router.ts";

/** A document, as `GET /api/v1/config/{name}` says; without data, it is deleted. */
export type ConfigData = Static<typeof Document>;

export type ConfigChangeData = Static<typeof Kept>;

const pathOf = (name: string) => `/api/v1/config/${encodeURIComponent(name)}`;

export const listConfigs = async (signal?: AbortSignal) =>
  (await rest<{ configs: Omit<ConfigData, "data">[] }>("/api/v1/config", { signal })).configs;

export const getConfig = (name: string, revision = "", signal?: AbortSignal): Promise<ConfigData> =>
  rest(`${pathOf(name)}${queryOf({ revision })}`, { signal });

export const listConfigChanges = async (name: string, signal?: AbortSignal): Promise<ConfigChangeData[]> =>
  (await rest<{ history: ConfigChangeData[] }>(`${pathOf(name)}/history`, { signal })).history;

/** `found` is what was read: another revision by now refuses it. 0 makes a document that is not there. */
export const putConfig = (name: string, data: unknown, found: number): Promise<{ revision: number }> =>
  rest(pathOf(name), {
    body: data,
    headers: found === 0 ? { "If-None-Match": "*" } : { "If-Match": `${found}` },
  });

export const rollbackConfig = (name: string, revision: number): Promise<{ revision: number }> =>
  rest(`${pathOf(name)}/rollback/${revision}`, { method: "POST" });

export const deleteConfig = (name: string, found: number): Promise<void> =>
  rest(pathOf(name), { method: "DELETE", headers: { "If-Match": `${found}` } });
