import type { Static } from "@sinclair/typebox";
import { useState } from "preact/hooks";
import type { RepairPreviewShape } from "../../../domain/engine/repairs/operations.ts";
import { messageOf, rest, rpc } from "../../lib/api.ts";
import { count } from "../../lib/format.ts";
import { go, hrefOf } from "../../lib/router.ts";
import type { RunFilters } from "../../lib/runs.ts";
import { toast } from "../../lib/toasts.ts";
import { Button } from "../../ui/basics.tsx";
import { type ChangeEnds, Field, FormDialog, useFields } from "../../ui/dialog.tsx";
import { RunStatus } from "../../ui/status.tsx";

type Preview = Static<typeof RepairPreviewShape>;

const actions = {
  cancel: { verb: "Cancel", done: "cancelled" },
  resume: { verb: "Resume", done: "resumed" },
} as const;
type BulkAction = keyof typeof actions;

const repairFilter = ({
  functionId,
  eventId,
  search,
  errorGroup,
  eventName,
  errorText,
  statuses = [],
  since,
  until,
}: RunFilters) => ({
  ...(functionId && { function_id: functionId }),
  ...(eventId && { event_id: eventId }),
  ...(search && { search }),
  ...(errorGroup && { error_group: errorGroup }),
  ...(eventName && { event_name: eventName }),
  ...(errorText && { error_text: errorText }),
  ...(statuses.length > 0 && { statuses }),
  ...(since && { since }),
  ...(until && { until }),
});

/** What can be done with the runs that are selected, or with all that the filters match. */
export function BulkBar(props: { filters: RunFilters; chosen: ReadonlySet<string>; onDone: () => void }) {
  const { filters, chosen, onDone } = props;
  const [asked, setAsked] = useState<{ action: BulkAction; preview?: Preview }>();
  // A repair cannot select by attributes, and must not take more than the list shows.
  const isFiltered = filters.where === undefined && Object.keys(repairFilter(filters)).length > 0;
  const some = chosen.size > 0;
  if (!some && !isFiltered) return null;

  const ask = async (action: BulkAction) => {
    if (some) return setAsked({ action });
    try {
      const body = { action, filter: repairFilter(filters) };
      setAsked({ action, preview: await rest<Preview>("/api/v1/repairs/preview", { body }) });
    } catch (error) {
      toast("failed", messageOf(error));
    }
  };
  return (
    <div class="bulk" role="toolbar" aria-label="Selected runs">
      <span class="bulk-count">{some ? `${count(chosen.size)} selected` : "All that match"}</span>
      <Button icon="play" text="Resume…" onClick={() => void ask("resume")} />
      <Button icon="stop" text="Cancel…" onClick={() => void ask("cancel")} />
      {some && <Button kind="quiet" text="Select none" onClick={onDone} />}
      {asked && (
        <BulkDialog {...{ filters, chosen, ...asked }} onClose={() => setAsked(undefined)} onDone={onDone} />
      )}
    </div>
  );
}

const each = { cancel: ["CancelRun", "id"], resume: ["ResumeRun", "runId"] } as const;

/** One after the other: the server refuses those whose state does not allow it. */
async function actOnEach(action: BulkAction, ids: readonly string[], reason: string): Promise<void> {
  const [method, field] = each[action];
  let done = 0;
  let firstRefusal = "";
  for (const id of ids)
    try {
      await rpc("SvcService", method, { [field]: id, ...(action === "cancel" && { reason }) });
      done++;
    } catch (error) {
      firstRefusal ||= messageOf(error);
    }
  if (done > 0) toast("done", `${count(done)} ${done === 1 ? "run" : "runs"} ${actions[action].done}`);
  if (done < ids.length) toast("failed", `${count(ids.length - done)} refused: ${firstRefusal}`);
}

function BulkDialog(
  props: ChangeEnds & {
    action: BulkAction;
    preview?: Preview;
    filters: RunFilters;
    chosen: ReadonlySet<string>;
  },
) {
  const { action, preview, filters, chosen, ...ends } = props;
  const [{ reason }, field] = useFields({ reason: "" });
  const { verb } = actions[action];
  const size = preview?.total_count ?? chosen.size;
  const amount = `${count(size)}${preview?.truncated ? "+" : ""} ${size === 1 ? "run" : "runs"}`;
  const submit = async () => {
    if (!preview) return actOnEach(action, [...chosen], reason);
    const { id } = await rest<{ id: string }>("/api/v1/repairs", {
      body: { action, filter: repairFilter(filters), reason },
    });
    go(hrefOf(["repairs", id]));
    return `A repair works through ${amount}`;
  };
  return (
    <FormDialog
      title={`${verb} ${amount}?`}
      submit={`${verb} ${amount}`}
      isDangerous={action === "cancel"}
      isDisabled={size === 0}
      onSubmit={submit}
      {...ends}
    >
      {preview ? (
        <>
          <p>
            All runs that the filters match now, one after the other, in the background. Runs that end
            meanwhile are left alone.
          </p>
          <ul class="plain-list">
            {Object.entries(preview.by_status).map(([status, number]) => (
              <li key={status}>
                <a href={hrefOf(["runs"], { status })}>
                  <RunStatus of={status} />
                </a>
                <span class="number">{count(number)}</span>
              </li>
            ))}
          </ul>
        </>
      ) : (
        <p>
          {action === "cancel"
            ? "The runs that you selected. What a run is doing now is given up; its history stays."
            : "The runs that you selected go on behind their stored steps."}
        </p>
      )}
      {(action === "cancel" || preview) && (
        <Field label="Reason" hint="Kept in the history." {...field("reason")} />
      )}
    </FormDialog>
  );
}
