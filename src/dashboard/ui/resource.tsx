import type { ComponentChildren, ComponentType } from "preact";
import { useEffect } from "preact/hooks";
import { useLoaded } from "../lib/hooks.ts";
import { noteRecent } from "../lib/prefs.ts";
import { address } from "../lib/router.ts";
import { may } from "../lib/session.ts";
import { Page, type PageHeadProps, Unread } from "./basics.tsx";
import { type DialogEnds, Opener } from "./dialog.tsx";
import type { IconName } from "./icons.tsx";
import { ReadTable, type ReadTableProps } from "./table.tsx";

/** A page of one list: its head with what makes one more, what stands above the rows, and the rows. */
export function ResourceList<Row>(
  props: PageHeadProps &
    ReadTableProps<Row> & {
      makes?: { text: string; icon: IconName; needs: string; dialog: ComponentType<DialogEnds> };
      children?: ComponentChildren;
    },
) {
  const { title, about, actions, makes, children, ...table } = props;
  const Making = makes?.dialog;
  const making = makes && Making && may(makes.needs) && (
    <Opener kind="primary" text={makes.text} icon={makes.icon}>
      {(onClose) => <Making onClose={onClose} />}
    </Opener>
  );
  return (
    <Page title={title} about={about} actions={actions ?? making}>
      {children}
      <ReadTable {...table} />
    </Page>
  );
}

/**
 * The one thing that the address names: it is read, and stands among what was looked at last. `unread` is
 * shown in its place until it is there.
 */
export function useOne<Value>(
  named: { one: string; all: string; allName?: string },
  load: (id: string, signal: AbortSignal) => Promise<Value>,
  deps: readonly unknown[] = [],
) {
  const id = address.value.rest[0] ?? "";
  const read = useLoaded((signal) => load(id, signal), [id, ...deps]);
  useEffect(() => noteRecent(named.all, id), [id]);
  return { ...read, id, unread: <Unread {...named} error={read.error} onRetry={read.reload} /> };
}
