import { Type } from "@sinclair/typebox";
import { described } from "../../../kit/described.ts";
import type { Rate as RateOf } from "./service.ts";

const count = Type.Integer();

export const Rate = Type.Object({
  events: described(count, "Events that were written."),
  runs_started: described(count, "Runs that were created."),
  runs_completed: described(count, "Runs that completed."),
  runs_failed: described(count, "Runs that failed."),
  runs_cancelled: described(count, "Runs that were cancelled."),
});

export const rateJson = ({ events, started, completed, failed, cancelled }: RateOf) => ({
  events,
  runs_started: started,
  runs_completed: completed,
  runs_failed: failed,
  runs_cancelled: cancelled,
});
