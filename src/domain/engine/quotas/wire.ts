import { Type } from "@sinclair/typebox";
import { stated } from "../../../kit/cases.ts";
import { described, shape } from "../../../kit/described.ts";
import type { QuotaUse } from "./service.ts";

const count = Type.Integer();

export const QuotaShape = Type.Object({
  quota: shape.text("`runs_per_minute`, `stored_bytes` or `concurrent_runs`."),
  limit: described(count, "The lower of both limits."),
  used: described(count, "What is used now."),
  platform_limit: Type.Optional(described(count, "The limit that the platform has set.")),
  own_limit: Type.Optional(described(count, "The limit that the environment has set for itself.")),
});

export const quotaJson = ({ quota, limit, used, platform, own }: QuotaUse) => ({
  ...{ quota, limit, used },
  ...stated({ platform_limit: platform, own_limit: own }),
});
