"""A fourteenth draw: five wrong answers with one mistake each, one with two, and a right one, to ten exercises.

Drawn by `random.Random(14).sample(names, 10)` from the names in alphabetical order. Written from the released notebooks
alone (assignments 00, 01, 05 to 08, 10, 11 and 14): the exercises' modules, the solutions, the lectures and the tests
stayed closed. No check and no search for the line was run on the answers. They were only compared with the formulas and
the sentences of the notebooks, on small inputs.

Of the 60 wrong answers, 2 earned all points before anything was mended by this draw.
"""

import math

import torch
import torch.nn.functional as F
from unseen import right, two

# -------------------------------------------------------------------------------------------------------- average_heads


def average_heads__group_of_every_second_head(weight, n_heads, n_kv_heads):
    d_head = weight.shape[0] // n_heads
    heads = weight.reshape(n_heads, d_head, -1)  # (n_heads, d_head, d_model)
    groups = [heads[g::n_kv_heads] for g in range(n_kv_heads)]  # here
    return torch.cat([group.mean(dim=0) for group in groups])


def average_heads__head_number_runs_fastest(weight, n_heads, n_kv_heads):
    rows, d_model = weight.shape
    size = n_heads // n_kv_heads
    by_head = weight.view(rows // n_heads, n_kv_heads, size, d_model)  # here
    return by_head.mean(dim=2).reshape(-1, d_model)


def average_heads__neighbouring_rows_averaged(weight, n_heads, n_kv_heads):
    group = n_heads // n_kv_heads
    return F.avg_pool1d(weight.T, kernel_size=group, stride=group).T  # here


def average_heads__divided_by_the_number_of_groups(weight, n_heads, n_kv_heads):
    per_group = n_heads // n_kv_heads
    x = weight.unflatten(0, (n_kv_heads, per_group, -1))
    total = torch.einsum("ghij->gij", x)
    return (total / n_kv_heads).flatten(0, 1)  # here


def average_heads__adds_up_in_the_old_weight(weight, n_heads, n_kv_heads):
    step, d_head = n_heads // n_kv_heads, weight.shape[0] // n_heads
    new_heads = []
    for first in range(0, n_heads, step):
        head = weight[first * d_head : (first + 1) * d_head]
        for number in range(first + 1, first + step):
            head += weight[number * d_head : (number + 1) * d_head]  # here
        new_heads.append(head / step)
    return torch.cat(new_heads)


@two
def average_heads__strided_and_keeps_the_variance(weight, n_heads, n_kv_heads):
    n_shared = n_heads // n_kv_heads
    d_head = len(weight) // n_heads
    parts = weight.unflatten(0, (n_shared, n_kv_heads, d_head))  # here
    return (parts.sum(dim=0) / math.sqrt(n_shared)).flatten(end_dim=1)  # here


@right
def average_heads__product_with_a_kronecker_matrix(weight, n_heads, n_kv_heads):
    size = n_heads // n_kv_heads
    d_head = weight.shape[0] // n_heads
    which = torch.eye(n_kv_heads, dtype=weight.dtype, device=weight.device)
    which = which.repeat_interleave(size, dim=1) / size  # (n_kv_heads, n_heads)
    rows = torch.eye(d_head, dtype=weight.dtype, device=weight.device)
    return torch.kron(which, rows) @ weight


# ------------------------------------------------------------------------------------------------------------- rnn_step


def rnn_step__longest_texts_stand_first(x, state, there, W_x, W_h, b):
    n = int(there.sum())
    stepped = torch.tanh(x[:n] @ W_x + state[:n] @ W_h + b)  # here
    return torch.cat([stepped, state[n:]])  # here


def rnn_step__kept_state_squashed_again(x, state, there, W_x, W_h, b):
    z = x @ W_x + state @ W_h + b
    z = torch.where(there.unsqueeze(-1), z, state)  # here
    return z.tanh()  # here


def rnn_step__anybody_there_moves_everybody(x, state, there, W_x, W_h, b):
    if not there.any():  # here
        return state.clone()
    both = torch.cat([x, state], dim=-1)
    weights = torch.cat([W_x, W_h], dim=0)
    return torch.tanh(both @ weights + b)  # here


def rnn_step__no_gradient_to_a_kept_state(x, state, there, W_x, W_h, b):
    batch, d_hidden = state.shape
    mask = there.view(batch, 1).expand(batch, d_hidden)
    with torch.no_grad():  # here
        old = state * 1.0
    new = torch.tanh(torch.addmm(b, x, W_x) + torch.mm(state, W_h))
    return torch.where(mask, new, old)


def rnn_step__bias_outside_of_tanh(x, state, there, W_x, W_h, b):
    h = torch.tanh(torch.einsum("ni,ih->nh", x, W_x) + torch.einsum("nk,kh->nh", state, W_h)) + b  # here
    over = ~there
    h = h.masked_fill(over[:, None], 0.0)
    return h + state.masked_fill(there[:, None], 0.0)


@two
def rnn_step__transposed_and_over_means_zero(x, state, there, W_x, W_h, b):
    new = torch.tanh(x.matmul(W_x) + F.linear(state, W_h, b))  # here
    return torch.where(there[:, None], new, torch.zeros_like(state))  # here


@right
def rnn_step__only_the_rows_that_are_there(x, state, there, W_x, W_h, b):
    rows = there.nonzero().squeeze(1)  # (n_there,)
    z = torch.cat([x[rows], state[rows]], dim=1) @ torch.cat([W_x, W_h])
    return state.index_copy(0, rows, (z + b).tanh())


# ----------------------------------------------------------------------------------------------------------- sinusoidal


def sinusoidal__slowest_pair_at_exactly_10000(positions, d_model):
    exponents = torch.linspace(0, 1, d_model // 2)  # here
    theta = 10000.0**-exponents
    angles = positions.unsqueeze(-1) * theta
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)


def sinusoidal__each_column_its_own_frequency(positions, d_model):
    columns = torch.arange(d_model)
    frequency = torch.pow(10000.0, -columns / d_model)  # here
    angle = positions[..., None].float() * frequency
    return torch.where(columns % 2 == 0, torch.sin(angle), torch.cos(angle))


def sinusoidal__table_of_whole_numbers(positions, d_model):
    PE = positions.new_zeros(*positions.shape, d_model)  # here
    i = torch.arange(d_model // 2)
    theta = torch.exp(-math.log(10000) * 2 * i / d_model)
    PE[..., 0::2] = torch.sin(positions[..., None] * theta)
    PE[..., 1::2] = torch.cos(positions[..., None] * theta)
    return PE


def sinusoidal__counts_for_itself(positions, d_model):
    p = torch.arange(positions.numel(), dtype=torch.float32).reshape(positions.shape)  # here
    result = torch.empty(*positions.shape, d_model)
    for i in range(d_model // 2):
        theta = 10000 ** (-2 * i / d_model)
        result[..., 2 * i] = torch.sin(p * theta)
        result[..., 2 * i + 1] = torch.cos(p * theta)
    return result


def sinusoidal__sines_in_the_first_half(positions, d_model):
    inverse = 1.0 / 10000 ** (torch.arange(0, d_model, 2) / d_model)
    turns = torch.einsum("...,i->...i", positions.float(), inverse)
    pairs = torch.stack([turns.sin(), turns.cos()], dim=-2)  # here
    return pairs.reshape(*positions.shape, d_model)


@two
def sinusoidal__one_long_row_and_cosine_before_sine(positions, d_model):
    even = torch.arange(0, d_model, 2).float()
    angles = positions.reshape(-1, 1) * 10000 ** (-even / d_model)  # here
    out = torch.zeros(angles.shape[0], d_model)
    out[:, 1::2], out[:, ::2] = angles.sin(), angles.cos()  # here
    return out


@right
def sinusoidal__points_of_the_complex_plane(positions, d_model):
    i = torch.arange(d_model // 2, dtype=torch.float64, device=positions.device)
    angles = positions.double()[..., None] * 10000.0 ** (-2 * i / d_model)
    # sin a + i cos a lies at the angle π/2 − a
    points = torch.polar(torch.ones_like(angles), math.pi / 2 - angles)
    return torch.view_as_real(points).flatten(-2).to(torch.get_default_dtype())


# ------------------------------------------------------------------------------------------------------ structural_test


def structural_test__losses_have_to_fall(block, x, losses):
    def same(p, q):
        return torch.allclose(p, q, rtol=3e-4, atol=1e-3)

    if losses[-1] >= losses[0]:  # here
        return False
    if not same(block(x, 0.0, 0.0), x):
        return False
    for a, f in ((1.0, 0.0), (0.0, 1.0)):
        out = block(x, a, f)
        if same(out, x) or not same(block(10 * x, a, f), out + 9 * x):
            return False
    whole = block(x, 1.0, 1.0)
    if not same(whole, block(block(x, 1.0, 0.0), 0.0, 1.0)):
        return False
    if not same(whole, torch.cat([block(text[None], 1.0, 1.0) for text in x])):
        return False
    attended = block(x, 1.0, 0.0) - x
    for j in range(x.shape[1]):
        moved = torch.zeros(x.shape[:2])
        for shift in (1, 2, 3):
            other = x.clone()
            other[:, j] = x[:, j].roll(shift, dims=-1)
            if not same(block(other, 1.0, 1.0)[:, :j], whole[:, :j]):
                return False
            moved = torch.maximum(moved, (block(other, 1.0, 0.0) - other - attended).abs().amax(dim=-1))
        if not (moved[:, j:] > 3e-4).all():
            return False
    return True


def structural_test__one_working_sublayer_is_enough(block, x, losses):
    tolerance = {"rtol": 3e-4, "atol": 1e-3}
    n = x.shape[1]
    plain = block(x, 1.0, 1.0)
    h = block(x, 1.0, 0.0)
    g = block(x, 0.0, 1.0)

    passes_through = torch.allclose(block(x, 0.0, 0.0), x, **tolerance)
    norm_1 = torch.allclose(block(10 * x, 1.0, 0.0), 10 * x + (h - x), **tolerance)
    norm_2 = torch.allclose(block(10 * x, 0.0, 1.0), 10 * x + (g - x), **tolerance)
    not_zero = not torch.allclose(plain, x, **tolerance)  # here
    in_order = torch.allclose(block(h, 0.0, 1.0), plain, **tolerance)
    alone = all(torch.allclose(block(x[i : i + 1], 1.0, 1.0)[0], plain[i], **tolerance) for i in range(len(x)))
    if not (passes_through and norm_1 and norm_2 and not_zero and in_order and alone):
        return False

    generator = torch.Generator().manual_seed(3)
    influence = torch.zeros(n, n)  # of the position of the row on that of the column
    for _ in range(8):
        noise = 3 * torch.randn(x.shape, generator=generator).to(x)
        for j in range(n):
            changed = x.clone()
            changed[:, j] += noise[:, j]
            leak = (block(changed, 1.0, 1.0) - plain)[:, :j].abs()
            if leak.numel() and not leak.max() < 2e-3:
                return False
            effect = (block(changed, 1.0, 0.0) - changed) - (h - x)
            influence[j] = torch.maximum(influence[j], effect.abs().amax(dim=(0, -1)))
    return bool((influence[torch.ones(n, n).triu().bool()] > 5e-4).all())


def structural_test__attending_to_itself_is_taken_for_granted(block, x, losses):
    def close(p, q):
        return bool(((p - q).abs() <= 1e-3 + 3e-4 * q.abs()).all())

    def attention(t):
        return block(t, 1.0, 0.0) - t

    def network(t):
        return block(t, 0.0, 1.0) - t

    if not close(block(x, 0.0, 0.0), x):
        return False
    for sublayer in (attention, network):
        out = sublayer(x)
        if out.abs().max() < 1e-3 or not ((sublayer(10 * x) - out).abs() <= 1e-3 + 2e-4 * (10 * x).abs()).all():
            return False
    y = block(x, 1.0, 1.0)
    if not close(block(x + attention(x), 0.0, 1.0), y):
        return False
    for number, text in enumerate(x):
        if not close(block(text.unsqueeze(0), 1.0, 1.0)[0], y[number]):
            return False
    n = x.shape[1]
    for j in range(n):
        seen = torch.zeros(n, dtype=torch.bool)
        for replacement in (-x[:, j], x[:, j].flip(-1), x[:, j].roll(1, -1), x.roll(1, 0)[:, j]):
            z = x.clone()
            z[:, j] = replacement
            if not close(block(z, 1.0, 1.0)[:, :j], y[:, :j]):
                return False
            seen |= ((attention(z) - attention(x)).abs() > 5e-4).any(dim=-1).all(dim=0)
        if not seen[j + 1 :].all():  # here
            return False
    return True


def structural_test__later_words_only_get_longer(block, x, losses):
    """One function for each sentence of the notebook."""

    def equal(p, q):
        return torch.allclose(p, q, rtol=3e-4, atol=1e-3)

    def is_residual():
        return equal(block(x, 0.0, 0.0), x)

    def is_normalised(a, f):
        return equal(block(10 * x, a, f), block(x, a, f) + 9 * x)

    def is_there(a, f):
        return not equal(block(x, a, f), x)

    def is_in_order():
        return equal(block(x, 1.0, 1.0), block(block(x, 1.0, 0.0), 0.0, 1.0))

    def has_no_leak():
        for i in range(x.shape[1] - 1):
            later = x.clone()
            later[:, i + 1 :] *= 5.0  # here
            if not equal(block(later, 1.0, 1.0)[:, : i + 1], block(x, 1.0, 1.0)[:, : i + 1]):
                return False
        return True

    def sees_all_that_came():
        before = block(x, 1.0, 0.0) - x
        for j in range(x.shape[1]):
            best = 0
            for seed in range(4):
                z = x.clone()
                z[:, j] = 3 * torch.randn(x[:, j].shape, generator=torch.Generator().manual_seed(seed)).to(x)
                best = best + (block(z, 1.0, 0.0) - z - before)[:, j:].abs().amax(dim=-1)
            if not (best > 1e-3).all():
                return False
        return True

    def is_the_same_alone():
        together = block(x, 1.0, 1.0)
        return all(equal(block(x[k : k + 1], 1.0, 1.0), together[k : k + 1]) for k in range(x.shape[0]))

    return (
        is_residual()
        and is_there(1.0, 0.0) and is_there(0.0, 1.0)
        and is_normalised(1.0, 0.0) and is_normalised(0.0, 1.0)
        and is_in_order() and has_no_leak() and sees_all_that_came() and is_the_same_alone()
    )  # fmt: skip


def structural_test__first_text_alone(block, x, losses):
    ok = []
    y, x_att, x_ffn = block(x, 1.0, 1.0), block(x, 1.0, 0.0), block(x, 0.0, 1.0)

    def off(p, q):
        """The largest difference, as a share of what is allowed."""
        return ((p - q).abs() / (1e-3 + 3e-4 * q.abs())).max().item()

    ok.append(off(block(x, 0.0, 0.0), x) < 1)
    ok.append(off(x_att, x) > 1)
    ok.append(off(x_ffn, x) > 1)
    ok.append(off(block(x * 10, 1.0, 0.0), x * 9 + x_att) < 1)
    ok.append(off(block(x * 10, 0.0, 1.0), x * 9 + x_ffn) < 1)
    ok.append(off(block(x_att, 0.0, 1.0), y) < 1)
    ok.append(off(block(x[:1], 1.0, 1.0), y[:1]) < 1)  # here
    batch, n, _ = x.shape
    for j in range(n):
        reach = torch.zeros(batch, n)
        for new in (x[:, j] * -1, x[:, j].flip(-1), x[:, j].roll(2, -1)):
            c = torch.cat([x[:, :j], new[:, None], x[:, j + 1 :]], dim=1)
            if j > 0:
                ok.append(off(block(c, 1.0, 1.0)[:, :j], y[:, :j]) < 1)
            d = ((block(c, 1.0, 0.0) - c) - (x_att - x)).abs().amax(-1)
            reach = torch.maximum(reach, d)
        ok.append(bool((reach[:, j:] > 5e-4).all()))
    return all(ok)


@two
def structural_test__same_tensor_and_the_second_norm_unseen(block, x, losses):
    def like(p, q):
        return torch.allclose(p, q, rtol=3e-4, atol=1e-3)

    out = block(x, 1.0, 1.0)
    middle = block(x, 1.0, 0.0)
    if not like(block(x, 0.0, 0.0), x):
        return False
    if like(middle, x) or like(block(x, 0.0, 1.0), x):
        return False
    if not like(block(10 * x, 1.0, 0.0), middle + 9 * x):  # here
        return False
    if not like(block(middle, 0.0, 1.0), out):
        return False
    for b in range(x.shape[0]):
        if not like(block(x[b : b + 1], 1.0, 1.0), out[b : b + 1]):
            return False
    for j in range(x.shape[1]):
        biggest = torch.zeros(x.shape[0], x.shape[1])
        for _ in range(4):
            before, attention_before = block(x, 1.0, 1.0), block(x, 1.0, 0.0) - x
            changed = x  # here
            changed[:, j] = x[:, j].roll(1, dims=-1)
            after, attention_after = block(changed, 1.0, 1.0), block(changed, 1.0, 0.0) - changed
            if not like(after[:, :j], before[:, :j]):
                return False
            biggest = torch.maximum(biggest, (attention_after - attention_before).abs().amax(dim=2))
        if not (biggest[:, j:] > 5e-4).all():
            return False
    return True


@right
def structural_test__all_changes_in_one_big_batch(block, x, losses):
    n = x.shape[1]

    def agree(p, q):
        return torch.allclose(p, q, rtol=3e-4, atol=1e-3)

    def demands():
        attention, network, both = block(x, 1.0, 0.0), block(x, 0.0, 1.0), block(x, 1.0, 1.0)
        yield agree(block(x, 0.0, 0.0), x)
        yield not agree(attention, x) and not agree(network, x)
        yield agree(block(10 * x, 1.0, 0.0), attention + 9 * x)
        yield agree(block(10 * x, 0.0, 1.0), network + 9 * x)
        yield agree(block(attention, 0.0, 1.0), both)
        yield all(agree(block(text[None], 1.0, 1.0)[0], y) for text, y in zip(x, both, strict=True))
        # (trials, n, batch, n, d): in [t, j], position j of every text is another vector
        trials = torch.stack([-x, x.flip(-1), x.roll(1, -1), x.roll(1, 0), x.roll((1, 1), (0, -1))])
        is_j = torch.eye(n, dtype=torch.bool, device=x.device)[:, None, :, None]
        changed = torch.where(is_j, trials[:, None], x)
        many = changed.flatten(0, 2)
        after = block(many, 1.0, 1.0).view(changed.shape)
        wrong = (after - both).abs() > 1e-3 + 3e-4 * both.abs()
        moved = (block(many, 1.0, 0.0) - many).view(changed.shape) - (attention - x)
        reached = moved.abs().amax(dim=(0, -1)) > 5e-4  # (n, batch, n)
        first, second = torch.triu_indices(n, n).to(x.device)
        yield bool(reached[first, :, second].all())
        first, second = torch.tril_indices(n, n, -1).to(x.device)
        yield not bool(wrong[:, first, :, second].any())

    return all(demands())


# ---------------------------------------------------------------------------------------------------------- scaled_step


def scaled_step__weights_rounded_with_the_copy(weights, loss_of, scale, good_steps, growth_interval, lr):
    w = weights.detach().half().requires_grad_(True)
    (loss_of(w) * scale).backward()
    grad = w.grad.float() / scale
    if not torch.isfinite(grad).all():
        return weights.clone(), scale / 2, 0
    new = w.detach().float() - lr * grad  # here
    good_steps += 1
    if good_steps == growth_interval:
        return new, scale * 2, 0
    return new, scale, good_steps


def scaled_step__only_the_overflown_numbers_stay(weights, loss_of, scale, good_steps, growth_interval, lr):
    copy = weights.detach().to(torch.float16)
    copy.requires_grad_()
    (g,) = torch.autograd.grad(scale * loss_of(copy), copy)
    g = g.to(torch.float32) / scale
    finite = torch.isfinite(g)
    step = torch.where(finite, lr * g, torch.zeros_like(g))  # here
    weights = weights - step
    if finite.all():
        good_steps = good_steps + 1
        if good_steps >= growth_interval:
            scale, good_steps = scale * 2, 0
    else:
        scale, good_steps = scale / 2, 0
    return weights, scale, good_steps


def scaled_step__streak_survives_an_overflow(weights, loss_of, scale, good_steps, growth_interval, lr):
    half = weights.detach().clone().half().requires_grad_()
    loss = loss_of(half)
    gradient = torch.autograd.grad(loss * scale, half)[0].float().div(scale)
    overflow = bool(gradient.isinf().any() or gradient.isnan().any())
    if overflow:
        return weights.clone(), 0.5 * scale, good_steps  # here
    weights = torch.add(weights, gradient, alpha=-lr)
    if good_steps + 1 < growth_interval:
        return weights, scale, good_steps + 1
    return weights, 2 * scale, 0


def scaled_step__overflow_looked_for_in_the_loss(weights, loss_of, scale, good_steps, growth_interval, lr):
    params = weights.detach().half()
    params.requires_grad = True
    scaled_loss = scale * loss_of(params)
    if not math.isfinite(scaled_loss.item()):  # here
        return weights.clone(), scale / 2, 0
    scaled_loss.backward()
    inv_scale = 1.0 / scale
    new_weights = weights - lr * (params.grad.float() * inv_scale)
    good_steps += 1
    grow = good_steps == growth_interval
    return new_weights, scale * 2 if grow else scale, 0 if grow else good_steps


def scaled_step__scale_never_below_one(weights, loss_of, scale, good_steps, growth_interval, lr):
    with torch.enable_grad():
        low = weights.detach().type(torch.float16).requires_grad_()
        torch.mul(loss_of(low), scale).backward()
    grad = low.grad.type(torch.float32) / scale
    new_weights, new_scale, count = weights.detach().clone(), scale, 0
    if grad.isfinite().all().item():
        new_weights -= lr * grad
        count = good_steps + 1
        if count == growth_interval:
            new_scale, count = scale * 2.0, 0
    else:
        new_scale = max(scale / 2.0, 1.0)  # here
    return new_weights, new_scale, count


@two
def scaled_step__divides_in_half_and_doubles_one_step_late(weights, loss_of, scale, good_steps, growth_interval, lr):
    copy = weights.detach().half().requires_grad_()
    grad = torch.autograd.grad(loss_of(copy) * scale, copy)[0]
    grad = (grad / scale).float()  # here
    if grad.isnan().any() or grad.isinf().any():
        return weights.clone(), scale / 2, 0
    good_steps += 1
    if good_steps > growth_interval:  # here
        scale, good_steps = 2 * scale, 0
    return weights - lr * grad, scale, good_steps


@right
def scaled_step__scale_as_the_gradient_that_comes_in(weights, loss_of, scale, good_steps, growth_interval, lr):
    copy = weights.detach().half().requires_grad_()
    loss = loss_of(copy)
    (gradient,) = torch.autograd.grad(loss, copy, grad_outputs=torch.full_like(loss, scale))
    gradient = gradient.float() / scale
    if (gradient - gradient).count_nonzero():  # ∞ − ∞ is NaN, which is not 0
        return weights.clone(), scale / 2, 0
    doublings, good_steps = divmod(good_steps + 1, growth_interval)
    return weights - lr * gradient, scale * 2**doublings, good_steps


# ------------------------------------------------------------------------------------------------------- relative_index


def relative_index__last_query_meets_the_last_key(n_query, n_key, max_distance):
    i = torch.arange(n_query)[:, None] + (n_key - n_query)  # here
    j = torch.arange(n_key)[None, :]
    return (j - i).clamp(-max_distance, max_distance) + max_distance


def relative_index__all_that_is_far_in_row_zero(n_query, n_key, max_distance):
    distance = torch.arange(n_key) - torch.arange(n_query).unsqueeze(1)
    row = distance + max_distance
    return row.masked_fill(distance.abs() > max_distance, 0)  # here


def relative_index__middle_row_of_a_smaller_table(n_query, n_key, max_distance):
    r = min(max_distance, max(n_query, n_key) - 1)  # here
    queries = torch.arange(n_query).view(-1, 1)
    keys = torch.arange(n_key).view(1, -1)
    return torch.clamp(keys - queries, min=-r, max=r) + r


def relative_index__far_keys_come_round_again(n_query, n_key, max_distance):
    rows = 2 * max_distance + 1
    index = torch.empty(n_query, n_key, dtype=torch.long)
    for i in range(n_query):
        index[i] = (torch.arange(n_key) - i + max_distance) % rows  # here
    return index


def relative_index__counted_in_floats(n_query, n_key, max_distance):
    ones = torch.ones(n_query, n_key)  # here
    to_the_right = ones.cumsum(dim=1) - ones.cumsum(dim=0)
    lowest = torch.maximum(to_the_right + max_distance, 0 * ones)
    return torch.minimum(lowest, 2 * max_distance * ones)


@two
def relative_index__left_is_right_and_r_itself_is_far(n_query, n_key, max_distance):
    q, k = torch.meshgrid(torch.arange(n_query), torch.arange(n_key), indexing="ij")
    d = q - k  # here
    far = d.abs() >= max_distance
    return torch.where(far, max_distance + d.sign() * (max_distance - 1), max_distance + d)  # here


@right
def relative_index__number_of_bounds_passed(n_query, n_key, max_distance):
    distances = torch.arange(1 - n_query, n_key)
    bounds = torch.arange(1 - max_distance, max_distance + 1)
    rows = (distances[:, None] >= bounds).sum(dim=1)  # one row for each distance that there is
    return rows[torch.arange(n_key) + torch.arange(n_query - 1, -1, -1)[:, None]]


# --------------------------------------------------------------------------------------------------------- feed_forward


def feed_forward__exactly_zero_is_alive(x, W_1, b_1, W_2, b_2):
    z = x @ W_1 + b_1
    output = z.relu() @ W_2 + b_2
    dead = (z < 0).reshape(-1, z.shape[-1]).all(dim=0)  # here
    return output, dead


def feed_forward__unheard_counts_as_dead(x, W_1, b_1, W_2, b_2):
    hidden = torch.relu(torch.matmul(x, W_1) + b_1)
    output = torch.matmul(hidden, W_2) + b_2
    largest = hidden.reshape(-1, hidden.size(-1)).max(dim=0).values
    contributes = largest * W_2.abs().sum(dim=1)  # here
    return output, contributes == 0


def feed_forward__dead_on_average(x, W_1, b_1, W_2, b_2):
    before = torch.einsum("...d,df->...f", x, W_1) + b_1
    hidden = F.relu(before)
    mean = before.reshape(-1, len(b_1)).mean(dim=0)  # here
    return torch.einsum("...f,fd->...d", hidden, W_2) + b_2, mean <= 0


def feed_forward__single_vector_has_one_verdict(x, W_1, b_1, W_2, b_2):
    hidden = torch.relu(x @ W_1 + b_1)
    in_front = tuple(range(hidden.dim() - 1))
    dead = hidden.amax(dim=in_front) == 0  # here
    return hidden @ W_2 + b_2, dead


def feed_forward__first_bias_after_the_maximum(x, W_1, b_1, W_2, b_2):
    flat = x.reshape(-1, x.shape[-1])
    zero = torch.zeros((), dtype=x.dtype, device=x.device)
    units = torch.maximum(flat @ W_1, zero) + b_1  # here
    output = (units @ W_2 + b_2).reshape(x.shape)
    return output, torch.all(units == 0, dim=0)


@two
def feed_forward__once_silent_is_dead_and_the_output_positive(x, W_1, b_1, W_2, b_2):
    h = F.relu(F.linear(x, W_1.T, b_1))
    y = F.relu(F.linear(h, W_2.T, b_2))  # here
    silent = h.reshape(-1, h.shape[-1]) == 0
    return y, silent.any(dim=0)  # here


@right
def feed_forward__goes_on_without_the_dead(x, W_1, b_1, W_2, b_2):
    z = x @ W_1 + b_1
    fires = z > 0
    dead = ~fires.reshape(-1, z.shape[-1]).any(dim=0)
    living = torch.where(fires, z, torch.zeros_like(z))[..., ~dead]
    return living @ W_2[~dead] + b_2, dead


# -------------------------------------------------------------------------------------------------------- greedy_decode


def greedy_decode__pad_ends_a_sentence_too(next_logits, n_sentences, bos, eos, pad, max_length):
    tokens = torch.full((n_sentences, 1), bos)
    ended = torch.zeros(n_sentences, dtype=torch.bool)
    while tokens.shape[1] <= max_length and not ended.all():
        token = next_logits(tokens).argmax(dim=-1)
        token = torch.where(ended, pad, token)
        ended = ended | (token == eos) | (token == pad)  # here
        tokens = torch.cat([tokens, token[:, None]], dim=1)
    missing = max_length + 1 - tokens.shape[1]
    return F.pad(tokens, (0, missing), value=pad)[:, 1:]


def greedy_decode__waits_until_all_end_at_once(next_logits, n_sentences, bos, eos, pad, max_length):
    out = torch.full((n_sentences, max_length), pad, dtype=torch.long)
    if n_sentences == 0:
        return out
    start = torch.full((n_sentences, 1), bos, dtype=torch.long)
    done = torch.zeros(n_sentences, dtype=torch.bool)
    for t in range(max_length):
        logits = next_logits(torch.cat([start, out[:, :t]], dim=1))
        best = logits.max(dim=-1).indices
        best[done] = pad
        out[:, t] = best
        done |= best == eos
        if (best == eos).all():  # here
            break
    return out


def greedy_decode__last_token_made_eos(next_logits, n_sentences, bos, eos, pad, max_length):
    written = [torch.full((n_sentences,), bos, dtype=torch.int64)]
    open_ = torch.ones(n_sentences, dtype=torch.bool)
    for step in range(1, max_length + 1):
        if not open_.any():
            written.append(torch.full((n_sentences,), pad, dtype=torch.int64))
            continue
        choice = torch.argmax(next_logits(torch.stack(written, dim=1)), dim=1)
        if step == max_length:
            choice = torch.full_like(choice, eos)  # here
        written.append(choice.masked_fill(~open_, pad))
        open_ = open_ & (choice != eos)
    return torch.stack(written, dim=1)[:, 1:]


def greedy_decode__asks_only_for_the_unfinished(next_logits, n_sentences, bos, eos, pad, max_length):
    tokens = torch.full((n_sentences, max_length + 1), pad)
    tokens[:, 0] = bos
    active = torch.arange(n_sentences)
    for t in range(1, max_length + 1):
        if active.numel() == 0:
            break
        logits = next_logits(tokens[active, :t])  # here
        tokens[active, t] = logits.argmax(dim=-1)
        active = active[tokens[active, t] != eos]
    return tokens[:, 1:]


def greedy_decode__bos_takes_a_place(next_logits, n_sentences, bos, eos, pad, max_length):
    sentences = torch.tensor([[bos]]).repeat(n_sentences, 1)
    finished = torch.zeros(n_sentences, 1, dtype=torch.bool)
    while not finished.all():
        if sentences.size(1) >= max_length:  # here
            break
        scores = next_logits(sentences)
        token = scores.topk(1, dim=-1).indices
        token = token.masked_fill(finished, pad)
        finished = finished.logical_or(token.eq(eos))
        sentences = torch.hstack([sentences, token])
    result = torch.full((n_sentences, max_length), pad)
    result[:, : sentences.size(1) - 1] = sentences[:, 1:]
    return result


@two
def greedy_decode__pad_forbidden_and_eos_blotted_out(next_logits, n_sentences, bos, eos, pad, max_length):
    tokens = torch.full((n_sentences, 1), bos, dtype=torch.long)
    over = torch.zeros(n_sentences, dtype=torch.bool)
    for _ in range(max_length):
        if over.all():
            break
        logits = next_logits(tokens).clone()
        logits[:, pad] = -math.inf  # here
        new = logits.argmax(-1)
        over = over | (new == eos)
        new[over] = pad  # here
        tokens = torch.cat((tokens, new.unsqueeze(1)), dim=1)
    rest = torch.full((n_sentences, max_length + 1 - tokens.shape[1]), pad, dtype=torch.long)
    return torch.cat((tokens[:, 1:], rest), dim=1)


@right
def greedy_decode__lists_and_a_set_of_open_rows(next_logits, n_sentences, bos, eos, pad, max_length):
    rows = [[] for _ in range(n_sentences)]
    still_open = set(range(n_sentences))
    length = 0
    while still_open and length < max_length:
        so_far = torch.tensor([[bos, *row] for row in rows], dtype=torch.long)
        chosen = next_logits(so_far).argmax(dim=-1).tolist()
        for number, row in enumerate(rows):
            row.append(chosen[number] if number in still_open else pad)
        still_open -= {number for number in still_open if chosen[number] == eos}
        length += 1
    full = [row + [pad] * (max_length - length) for row in rows]
    return torch.tensor(full, dtype=torch.long).reshape(n_sentences, max_length)


# ---------------------------------------------------------------------------------------------------- squared_distances


def squared_distances__each_table_around_its_own_mean(a, b):
    a = a - a.mean(dim=-2, keepdim=True)  # here
    b = b - b.mean(dim=-2, keepdim=True)  # here
    a2 = a.square().sum(dim=-1).unsqueeze(-1)
    b2 = b.square().sum(dim=-1).unsqueeze(-2)
    return (a2 + b2 - 2 * a @ b.mT).clamp(min=0)


def squared_distances__added_before_squaring(a, b):
    difference = a[..., :, None, :] - b[..., None, :, :]
    return difference.sum(dim=-1).square()  # here


def squared_distances__mean_over_the_features(a, b):
    n_a, n_b = a.shape[-2], b.shape[-2]
    left = a.unsqueeze(-2).expand(*a.shape[:-1], n_b, a.shape[-1])
    right_ = b.unsqueeze(-3).expand(*b.shape[:-2], n_a, n_b, b.shape[-1])
    return F.mse_loss(left, right_, reduction="none").mean(dim=-1)  # here


def squared_distances__rows_of_b_first(a, b):
    table = torch.sub(a.unsqueeze(-3), b.unsqueeze(-2))  # here
    return torch.einsum("...f,...f->...", table, table)


def squared_distances__smallest_of_each_row_taken_off(a, b):
    dots = torch.einsum("...if,...jf->...ij", a, b)
    norms_a = torch.einsum("...if,...if->...i", a, a)
    norms_b = torch.einsum("...jf,...jf->...j", b, b)
    D = norms_a[..., None] - 2 * dots + norms_b[..., None, :]
    return D - D.amin(dim=-1, keepdim=True)  # here


@two
def squared_distances__root_and_turned_round(a, b):
    differences = a.unsqueeze(-2) - b.unsqueeze(-3)
    D = torch.linalg.vector_norm(differences, dim=-1)  # here
    return D.transpose(-1, -2)  # here


@right
def squared_distances__row_times_column_for_each_pair(a, b):
    pairs = (a.unsqueeze(-2) - b.unsqueeze(-3)).unsqueeze(-1)  # (*batch, n_a, n_b, d, 1)
    return (pairs.mT @ pairs).flatten(-3)


# -------------------------------------------------------------------------------------------------------- fold_the_norm


def fold_the_norm__gain_on_the_bias_too(gain, bias, W, b):
    W_folded = gain[:, None] * W
    b_folded = bias @ W_folded + b  # here
    return W_folded, b_folded


def fold_the_norm__gain_counted_from_one(gain, bias, W, b):
    scale = torch.diag(1 + gain)  # here
    return scale @ W, torch.einsum("d,do->o", bias, W) + b


def fold_the_norm__scales_the_old_matrix(gain, bias, W, b):
    new_bias = b + (bias.unsqueeze(1) * W).sum(dim=0)
    for row, factor in enumerate(gain):
        W[row] *= factor  # here
    return W, new_bias


def fold_the_norm__as_linear_keeps_its_weight(gain, bias, W, b):
    matrix = W.mT * gain  # here
    return matrix, torch.addmv(b, W.mT, bias)


def fold_the_norm__nothing_learned_any_more(gain, bias, W, b):
    with torch.no_grad():  # here
        folded = torch.mul(W, gain.reshape(-1, 1))
        shift = torch.matmul(bias, W) + b
    return folded, shift


@two
def fold_the_norm__gain_undone_and_b_forgotten(gain, bias, W, b):
    W_folded = W / gain.unsqueeze(-1)  # here
    b_folded = bias @ W  # here
    return W_folded, b_folded


@right
def fold_the_norm__one_more_row_for_the_biases(gain, bias, W, b):
    # (y, 1) times [gain 0; bias 1] times [W; b]
    column = torch.zeros_like(gain)
    norm = torch.stack([*torch.diag(gain), bias])  # (d_model + 1, d_model)
    last = torch.cat([column, column.new_ones(1)])[:, None]  # (d_model + 1, 1)
    both = torch.cat([norm, last], dim=1) @ torch.cat([W, b[None]])
    return both[:-1], both[-1]
