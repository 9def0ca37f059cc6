import { rfc3339 } from "../../../../kit/clock.ts";
import { timestampOf } from "../../../../kit/wkt.ts";
import type { ReplayPreview } from "./service.ts";

export const toReplayPreview = ({ samples, ...preview }: ReplayPreview) => ({
  ...{ fromPosition: BigInt(preview.from), toPosition: BigInt(preview.to), truncated: preview.isTruncated },
  ...{ scanned: BigInt(preview.scanned), matched: BigInt(preview.matched) },
  ...{ withRun: BigInt(preview.withRun), toStart: BigInt(preview.toStart) },
  samples: samples.map(({ id, name, position, at, hasRun }) => ({
    ...{ eventId: id, name, position: BigInt(position), at: timestampOf(at), hasRun },
  })),
});

export const replayPreviewJson = ({ samples, ...preview }: ReplayPreview) => ({
  ...{ from_position: preview.from, to_position: preview.to, scanned: preview.scanned },
  ...{ truncated: preview.isTruncated, matched: preview.matched, with_run: preview.withRun },
  to_start: preview.toStart,
  samples: samples.map(({ id, name, position, at, hasRun }) => ({
    ...{ event_id: id, name, position, at: rfc3339(at), has_run: hasRun },
  })),
});
