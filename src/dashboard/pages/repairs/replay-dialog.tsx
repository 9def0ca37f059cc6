import type { Static } from "@sinclair/typebox";
import { useEffect, useState } from "preact/hooks";
import type { ReplayPreviewShape } from "../../../domain/engine/repairs/replays/operations.ts";
import { messageOf, rest } from "../../lib/api.ts";
import { count, counted, instantOf } from "../../lib/format.ts";
import { go, hrefOf } from "../../lib/router.ts";
import { Text, When } from "../../ui/basics.tsx";
import { Check, type DialogEnds, Field, FormDialog, useFields } from "../../ui/dialog.tsx";

type PreviewData = Static<typeof ReplayPreviewShape>;

const previewPauseMs = 400;
const samplesShown = 5;

/** Which events would be replayed, as it is typed. */
function usePreview(functionId: string, events: object) {
  const [found, setFound] = useState<{ preview?: PreviewData; error?: unknown }>({});
  const key = JSON.stringify([functionId, events]);
  useEffect(() => {
    setFound({});
    if (functionId === "") return;
    const over = new AbortController();
    const body = { function_id: functionId, events };
    const look = () =>
      rest<PreviewData>("/api/v1/replays/preview", { body, signal: over.signal }).then(
        (preview) => setFound({ preview }),
        (error) => !over.signal.aborted && setFound({ error }),
      );
    const timer = setTimeout(look, previewPauseMs);
    return () => {
      clearTimeout(timer);
      over.abort();
    };
  }, [key]);
  return found;
}

/** What is no time goes out as it is typed: the server refuses it, and without it all events were meant. */
const instantText = (typed: string): string => {
  const at = instantOf(typed);
  return at === undefined ? typed : new Date(at).toISOString();
};

/** Starts a function on events of the past. */
export function ReplayDialog(props: DialogEnds & { functionId?: string }) {
  const { onClose } = props;
  const [{ functionId, pattern, filter, since, reason }, field] = useFields({
    ...{ functionId: props.functionId ?? "", pattern: "", filter: "", since: "", reason: "" },
  });
  const [again, setAgain] = useState(false);
  const from = instantText(since);
  const events = {
    ...{ ...(pattern && { pattern }), ...(filter && { filter }) },
    ...{ ...(from && { since: from }), ...(again && { again }) },
  };
  const { preview, error } = usePreview(functionId, events);
  const submit = async () => {
    const body = { function_id: functionId, events, ...(reason && { reason }) };
    const { id } = await rest<{ id: string }>("/api/v1/replays", { body });
    go(hrefOf(["repairs", id]));
    return "The replay has begun";
  };
  return (
    <FormDialog
      title="Replay events"
      submit={
        preview
          ? `Start ${counted(preview.to_start, "run")}${preview.truncated ? ", and more" : ""}`
          : "Start"
      }
      isDisabled={!preview || preview.to_start === 0}
      onSubmit={submit}
      onClose={onClose}
    >
      {props.functionId === undefined && (
        <Field label="Function" isRequired {...field("functionId")} hint="Its id" />
      )}
      <Field
        label="Events"
        {...field("pattern")}
        hint="A name or a pattern such as order.*; empty: what starts the function."
      />
      <Field label="Condition (CEL)" isCode {...field("filter")} hint="Such as data.total > 100" />
      <Field label="Since" {...field("since")} hint="Such as 2026-11-22 08:00; empty: all that is kept." />
      <Check label="Also events that the function has a run of" isChecked={again} onChange={setAgain} />
      <Field label="Reason" {...field("reason")} />
      <div aria-live="polite">
        {error !== undefined && <Text of={messageOf(error)} in="p" class="form-error" />}
        {preview && <Preview of={preview} />}
      </div>
    </FormDialog>
  );
}

const Preview = ({ of }: { of: PreviewData }) => (
  <>
    <p>
      {`${count(of.matched)} of ${count(of.scanned)}${of.truncated ? " and more" : ""} events match; `}
      {`the function has a run of ${count(of.with_run)}.`}
    </p>
    <ul class="plain-list">
      {of.samples.slice(0, samplesShown).map(({ event_id, name, at, has_run }) => (
        <li key={event_id}>
          <Text of={name} in="span" class="grows" />
          {has_run && <span class="tag">has a run</span>}
          <span class="faint">
            <When at={at} />
          </span>
        </li>
      ))}
    </ul>
  </>
);
