"""Schedules are tasks; a task may need something that not every worker has."""

from alembic import op

revision = "0011"
down_revision = "0010"

UP = """
ALTER TABLE tasks ADD COLUMN needs TEXT;
ALTER TABLE tasks DROP CONSTRAINT tasks_kind_check, DROP CONSTRAINT tasks_talk_has_an_origin_check;
ALTER TABLE tasks
  ADD CONSTRAINT tasks_kind_check CHECK (kind in ('turn', 'followup', 'notice', 'function', 'schedule')),
  ADD CONSTRAINT tasks_talk_has_an_origin_check
    CHECK (kind in ('function', 'schedule') or (conversation is not null and channel is not null)),
  ADD CONSTRAINT tasks_no_lane_with_needs_check CHECK (needs is null or not lane);
DROP INDEX tasks_due_to_work;
CREATE INDEX tasks_due_timed ON tasks (due_at, id) WHERE state = 'scheduled' and hold is null and not lane and needs is null and booked_for > created_at;
CREATE INDEX tasks_due_background ON tasks (due_at, id) WHERE state = 'scheduled' and hold is null and not lane and needs is null and booked_for <= created_at;
CREATE INDEX tasks_due_with_needs ON tasks (due_at, id) WHERE state = 'scheduled' and hold is null and needs is not null;
CREATE INDEX tasks_schedules ON tasks (bucket, tenant, key) WHERE kind = 'schedule';
"""

DOWN = """
delete from tasks where kind = 'schedule';
drop index tasks_schedules;
drop index tasks_due_with_needs;
drop index tasks_due_background;
drop index tasks_due_timed;
alter table tasks drop constraint tasks_no_lane_with_needs_check, drop constraint tasks_talk_has_an_origin_check, drop constraint tasks_kind_check;
alter table tasks
  add constraint tasks_kind_check check (kind in ('turn', 'followup', 'notice', 'function')),
  add constraint tasks_talk_has_an_origin_check check (kind = 'function' or (conversation is not null and channel is not null));
alter table tasks drop column needs;
create index tasks_due_to_work on tasks (due_at, id) where state = 'scheduled' and hold is null and not lane;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
