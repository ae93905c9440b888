/** The end of a list: the button for its next page. */
import { t } from "../text";
import { Button } from "./actions";

export function More({ list }: { list: { hasMore: boolean; isMore?: boolean; more: () => void } }) {
  if (!list.hasMore) return null;
  return (
    <div class="fin">
      <Button onClick={list.more} disabled={list.isMore ?? false}>
        {t(list.isMore ? "loading" : "list.more")}
      </Button>
    </div>
  );
}
