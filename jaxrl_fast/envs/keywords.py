"""Keywords of `jf.make` for type checkers, by scripts/settings_page.py."""

from typing import TypedDict


class CommonSettings(TypedDict, total=False):
    """Settings of every environment."""

    action_repeat: int
    """Steps for which every action is played. Default: 1."""
    sticky_actions: float
    """Probability of repeating the last action instead. Default: 0.0."""
    stack: int
    """Frames in an observation. Default: 1."""
    reward_scale: float
    """Factor of rewards. Default: 1.0."""
    reward_clip: float | None
    """Rewards are clipped to this size. Default: none."""
    time_limit: int | None
    """Actions after which an episode is truncated. Default: none."""


class CartPoleSettings(CommonSettings, total=False):
    """Settings of CartPole-v1."""

    gravity: float
    """Acceleration of gravity in m/s^2. Default: 9.8."""
    masscart: float
    """Mass of the cart in kg. Default: 1.0."""
    masspole: float
    """Mass of the pole in kg. Default: 0.1."""
    length: float
    """Half the pole's length in metres. Default: 0.5."""
    force_mag: float
    """Force of an action in N. Default: 10.0."""
    tau: float
    """Seconds of a step. Default: 0.02."""
    theta_threshold_radians: float
    """Angle at which an episode ends, in radians. Default: 0.20943951023931953."""
    x_threshold: float
    """Distance from the centre at which an episode ends, in metres. Default: 2.4."""
    max_steps_in_episode: int
    """Steps after which an episode is truncated. Default: 500."""


class AcrobotSettings(CommonSettings, total=False):
    """Settings of Acrobot-v1."""

    dt: float
    """Seconds of a step. Default: 0.2."""
    link_length_1: float
    """Length of the first link in metres. Default: 1.0."""
    link_mass_1: float
    """Mass of the first link in kg. Default: 1.0."""
    link_mass_2: float
    """Mass of the second link in kg. Default: 1.0."""
    link_com_pos_1: float
    """Centre of mass of the first link, in metres from its joint. Default: 0.5."""
    link_com_pos_2: float
    """Centre of mass of the second link, in metres from its joint. Default: 0.5."""
    link_moi: float
    """Moment of inertia of a link in kg m^2. Default: 1.0."""
    gravity: float
    """Acceleration of gravity in m/s^2. Default: 9.8."""
    max_vel_1: float
    """Highest velocity of the first joint in rad/s. Default: 12.566370614359172."""
    max_vel_2: float
    """Highest velocity of the second joint in rad/s. Default: 28.274333882308138."""
    max_steps_in_episode: int
    """Steps after which an episode is truncated. Default: 500."""


class MountainCarSettings(CommonSettings, total=False):
    """Settings of MountainCar-v0."""

    min_position: float
    """Position of the wall on the left. Default: -1.2."""
    max_position: float
    """Right end of the road. Default: 0.6."""
    max_speed: float
    """Highest speed. Default: 0.07."""
    goal_position: float
    """Position of the flag. Default: 0.5."""
    goal_velocity: float
    """Lowest velocity that counts at the flag. Default: 0.0."""
    force: float
    """Change of velocity by an action. Default: 0.001."""
    gravity: float
    """Change of velocity by the slope. Default: 0.0025."""
    max_steps_in_episode: int
    """Steps after which an episode is truncated. Default: 200."""


class MountainCarContinuousSettings(CommonSettings, total=False):
    """Settings of MountainCarContinuous-v0."""

    min_action: float
    """Strongest throttle to the left. Default: -1.0."""
    max_action: float
    """Strongest throttle to the right. Default: 1.0."""
    min_position: float
    """Position of the wall on the left. Default: -1.2."""
    max_position: float
    """Right end of the road. Default: 0.6."""
    max_speed: float
    """Highest speed. Default: 0.07."""
    goal_position: float
    """Position of the flag. Default: 0.45."""
    goal_velocity: float
    """Lowest velocity that counts at the flag. Default: 0.0."""
    power: float
    """Change of velocity by a full throttle. Default: 0.0015."""
    gravity: float
    """Change of velocity by the slope. Default: 0.0025."""
    max_steps_in_episode: int
    """Steps after which an episode is truncated. Default: 999."""


class PendulumSettings(CommonSettings, total=False):
    """Settings of Pendulum-v1."""

    max_speed: float
    """Highest angular velocity in rad/s. Default: 8.0."""
    max_torque: float
    """Highest torque in N m. Default: 2.0."""
    dt: float
    """Seconds of a step. Default: 0.05."""
    g: float
    """Acceleration of gravity in m/s^2. Default: 10.0."""
    m: float
    """Mass in kg. Default: 1.0."""
    l: float
    """Length in metres. Default: 1.0."""
    max_steps_in_episode: int
    """Steps after which an episode is truncated. Default: 200."""


class BreakoutSettings(CommonSettings, total=False):
    """Settings of Breakout-MinAtar."""

    max_steps_in_episode: int
    """Steps after which an episode is truncated. Default: 1000."""
    use_minimal_action_set: bool
    """Three actions instead of MinAtar's six. Default: true."""
