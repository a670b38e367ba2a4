"""One update of an endpoint: a rollout to a new fleet, or a rollback to the old one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from local_cloud.sagemaker.hosting.changes import AlarmStates, RolledBack, Watch
from local_cloud.sagemaker.hosting.endpoint import Traffic
from local_cloud.sagemaker.hosting.fleet import Fleet, inspect
from local_cloud.sagemaker.hosting.instance import ServerError
from local_cloud.sagemaker.hosting.rollout import Rollout
from local_cloud.settings import Settings


@dataclass(kw_only=True)
class Update:
    """The whole new fleet starts, then takes the traffic share by share; of rolling updates too.

    `route` shifts traffic; `place` moves the endpoint's inference components to a fleet.
    """

    before: Traffic
    new: Fleet
    plan: Rollout
    settings: Settings
    alarm_states: AlarmStates
    route: Callable[[Traffic], None]
    place: Callable[[Fleet], None]

    def run(self) -> None:
        """End with the new fleet alone. Raises RolledBack, with the old one as before."""
        watch = Watch(
            plan=self.plan,
            settings=self.settings,
            alarm_states=self.alarm_states,
            trouble=self._trouble,
        )
        try:
            self.new.start()
            self.place(self.new)
        except ServerError as error:
            self.new.stop()
            raise RolledBack(str(error)) from error
        try:
            for share in self.plan.shares:
                watch.check()
                self.route(Traffic(fleet=self.before.fleet, new=self.new, new_share=share))
                watch.bake()
        except BaseException:
            self.place(self.before.fleet)
            self.route(self.before)
            self.new.stop()
            raise
        self.route(Traffic(fleet=self.new))
        time.sleep(self.settings.scaled_wait(self.plan.termination_wait_seconds))
        self.before.fleet.stop()

    def _trouble(self) -> str | None:
        inspect(self.new)
        if any(variant.lost for variant in self.new.variants):
            return f"instances of endpoint config {self.new.config_name} did not stay healthy."
        return None
