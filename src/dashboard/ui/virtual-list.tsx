import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

/** Rows beyond the edges that are drawn already, so that fast scrolling shows no gap. */
const spareRows = 12;

/**
 * A list of rows of one height, of which only those in sight are in the document. `total` may be more than
 * what is loaded: `row` then draws a place for what is to come.
 */
export function VirtualList(props: {
  total: number;
  rowHeight: number;
  row: (index: number) => ComponentChildren;
  /** Tells rows apart while others come before them. */
  keyOf: (index: number) => string;
  /** Called with the rows in sight. */
  onSight?: (first: number, last: number) => void;
  /** Kept in sight; -1 for none. */
  active?: number;
  label: string;
  class?: string;
}) {
  const { total, rowHeight, row, keyOf, onSight, active = -1 } = props;
  const element = useRef<HTMLDivElement>(null);
  const [sight, setSight] = useState({ top: 0, height: 600 });

  const measure = () => {
    const { current } = element;
    if (!current) return;
    const { scrollTop: top, clientHeight: height } = current;
    setSight((before) => (before.top === top && before.height === height ? before : { top, height }));
  };
  useLayoutEffect(() => {
    // It measures once the layout is there: asked for here, the layout of an opening page is made twice.
    const observer = new ResizeObserver(measure);
    if (element.current) observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(() => {
    const { current } = element;
    if (!current || active < 0) return;
    const top = active * rowHeight;
    if (top < current.scrollTop) current.scrollTop = top;
    else if (top + rowHeight > current.scrollTop + current.clientHeight)
      current.scrollTop = top + rowHeight - current.clientHeight;
  }, [active, rowHeight]);

  const first = Math.max(0, Math.floor(sight.top / rowHeight) - spareRows);
  const last = Math.min(total, Math.ceil((sight.top + sight.height) / rowHeight) + spareRows);
  useLayoutEffect(() => onSight?.(first, last), [first, last, total]);

  const shown = [];
  for (let index = first; index < last; index++) shown.push(<li key={keyOf(index)}>{row(index)}</li>);
  return (
    <section ref={element} class={`virtual ${props.class ?? ""}`} onScroll={measure} aria-label={props.label}>
      <div class="virtual-all" style={{ height: `${total * rowHeight}px` }}>
        <ul class="virtual-shown" style={{ transform: `translateY(${first * rowHeight}px)` }}>
          {shown}
        </ul>
      </div>
    </section>
  );
}
