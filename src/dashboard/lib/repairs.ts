import type { Static } from "@sinclair/typebox";
import type { ItemOut } from "../../domain/engine/repairs/operations.ts";
import type { RepairOut } from "../../domain/engine/repairs/wire.ts";
import { rest } from "./api.ts";
import { queryOf } from "./router.ts";

/** What became of the runs of a repair, in the order in which it is shown. */
export const outcomes = ["done", "failed", "refused", "over", "undone", "pending"] as const;

/** A repair, as `GET /api/v1/repairs/{id}` says. */
export type RepairData = Static<typeof RepairOut>;

export type RepairItemData = Static<typeof ItemOut>;

export const totalOf = ({ counts }: RepairData): number =>
  outcomes.reduce((sum, outcome) => sum + (counts[outcome] ?? 0), 0);

export const isEnded = ({ status }: RepairData): boolean => status === "completed" || status === "stopped";

export const listRepairs = (cursor: string, signal?: AbortSignal) =>
  rest<{ repairs: RepairData[]; next_cursor: string }>(`/api/v1/repairs${queryOf({ limit: "50", cursor })}`, {
    signal,
  });

const pathOf = (id: string) => `/api/v1/repairs/${encodeURIComponent(id)}`;

export const getRepair = (id: string, signal?: AbortSignal): Promise<RepairData> =>
  rest(pathOf(id), { signal });

export const listItems = (id: string, asked: { outcome: string; cursor: string }, signal?: AbortSignal) =>
  rest<{ items: RepairItemData[]; next_cursor: string }>(
    `${pathOf(id)}/items${queryOf({ limit: "100", ...asked })}`,
    { signal },
  );

export const steerRepair = (id: string, verb: "pause" | "continue" | "stop"): Promise<RepairData> =>
  rest(`${pathOf(id)}/${verb}`, { method: "POST", body: {} });
