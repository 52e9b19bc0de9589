"""Methods that estimate distances: a file for each, and another for its client side (`*_client`).

`cross`        the default: cross-fitted discriminators. `hypothesis` is the same with other discriminators (`heads`);
               `cross_design` is what is trained for each pair, `stacked` the fast way in one process
`few_round`    two rounds, in closed form, where rounds are expensive
`published`    Algorithm 1 of the paper: its `discriminator`, its loop (`published_loop`), the fast way (`span`)
`label`, `prototype`    for comparison
"""
